//! The data tests on every shape of controller that QEMU has.

use crate::machine;
use crate::test::{Context, Outcome, Test};
use driver::memory::PageKind;
use hil::boots::{self, SHAPES};
use hil::data;

pub(crate) fn tests() -> Vec<Test> {
    let mut tests = vec![Test::new("data::kind_of_pages", BOTH, kind_of_pages)];
    for shape in SHAPES {
        let named = |topic| format!("data::{topic}::{}", shape.name);
        tests.push(Test::new(named("limits"), &["plain"], |_| {
            data::limits(&machine::attach(shape)?, shape)
        }));
        // Where a page lies is the same to the edges of transfers: one boot is enough for these.
        tests.push(Test::new(named("edges"), &["transfers"], |_| {
            data::edges(&machine::attach(shape)?, shape)
        }));
        tests.push(Test::new(
            named("random"),
            &["transfers", "hugepages"],
            |context| data::random(&machine::attach(shape)?, context.seed),
        ));
        tests.push(Test::new(named("deep"), BOTH, |context| {
            data::deep(&machine::attach(shape)?, shape, context.seed)
        }));
        tests.push(Test::new(named("commands"), &["plain"], |_| {
            data::commands(&machine::attach(shape)?)
        }));
    }
    tests
}

const BOTH: &[&str] = &["plain", "hugepages"];

/// Memory comes in huge pages if the machine has any, and in ordinary ones otherwise.
fn kind_of_pages(context: &Context) -> Outcome {
    let attached = machine::attach(&boots::LBA512)?;
    let huge = attached.domain.region(8 << 20)?.pages() == PageKind::Huge;
    assert_eq!(huge, context.boot.name == "hugepages");
    Ok(())
}
