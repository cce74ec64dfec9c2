//! nvme-perf on a PCI address: it measures, prints its table and its JSON, and writes only if told to.

use crate::machine::{self, Attached};
use crate::test::{Context, Outcome, Test};
use driver::controller::QueueOptions;
use driver::namespace::{BlockingIo, Lba};
use hil::boots::{self, LBA512, LBA4096, MDTS_8K, SMALL_QUEUES, THREE_NAMESPACES};
use std::error::Error;
use std::process::{Command, Output};

pub(crate) fn tests() -> Vec<Test> {
    let mut tests = vec![
        Test::new("perf::json", &["plain"], json),
        Test::new(
            "perf::writes_only_if_told_to",
            &["plain"],
            writes_only_if_told_to,
        ),
    ];
    for shape in [
        &LBA512,
        &LBA4096,
        &MDTS_8K,
        &SMALL_QUEUES,
        &THREE_NAMESPACES,
    ] {
        let name = format!("perf::table::{}", shape.name);
        tests.push(Test::new(name, BOTH, |_| table(shape)));
    }
    tests
}

const BOTH: &[&str] = &["plain", "hugepages"];

fn nvme_perf(device: &str, arguments: &[&str]) -> Result<Output, Box<dyn Error>> {
    let output = Command::new("/bin/nvme-perf")
        .arg(device)
        .args(arguments)
        .output()?;
    println!("{}", String::from_utf8_lossy(&output.stderr));
    println!("{}", String::from_utf8_lossy(&output.stdout));
    Ok(output)
}

/// The numbers of the table's line that begins with `name`.
fn row(text: &str, name: &str) -> Result<Vec<f64>, Box<dyn Error>> {
    let line = text
        .lines()
        .find(|line| line.starts_with(name))
        .ok_or("the table has no such line")?;
    let (_, numbers) = line.split_once(':').ok_or("a line without numbers")?;
    Ok(numbers
        .split_whitespace()
        .map(str::parse)
        .collect::<Result<_, _>>()?)
}

/// The last namespace is measured by random reads, with a table whose numbers fit one another.
fn table(shape: &'static boots::Controller) -> Outcome {
    let device = format!("{},ns={}", shape.address(), shape.namespaces_mib.len());
    let output = nvme_perf(&device, &["--number-ios", "3000"])?;
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout)?;
    for part in ["IOPS", "MiB/s", "Average", "clat percentiles", "99.00th"] {
        assert!(text.contains(part), "`{part}` is missing");
    }
    let [iops, mib, average, min, max] = row(&text, "Total")?[..] else {
        return Err("a table of other than five columns".into());
    };
    assert!(
        iops > 0.0 && (mib - iops * 4096.0 / f64::from(1 << 20)).abs() < 0.1,
        "{iops} {mib}"
    );
    assert!(
        0.0 < min && min <= average && average <= max,
        "{min} {average} {max}"
    );
    Ok(())
}

/// The JSON has fio's keys.
fn json(_: &Context) -> Outcome {
    let output = nvme_perf(
        &LBA512.address(),
        &["--number-ios", "1000", "--output-format", "json"],
    )?;
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout)?;
    for key in [
        "\"jobs\"",
        "\"read\"",
        "\"iops\"",
        "\"clat_ns\"",
        "\"99.000000\"",
    ] {
        assert!(text.contains(key), "{key} is missing");
    }
    Ok(())
}

/// A drive that holds data is written to with `--force` only: without it nothing changes, and the
/// message names the option.
fn writes_only_if_told_to(_: &Context) -> Outcome {
    const LEN: usize = 1 << 20;
    let with_drive = |job: &dyn Fn(&mut BlockingIo, &Attached) -> Outcome| -> Outcome {
        let attached = machine::attach(&LBA512)?;
        let queue = attached.controller.queue_pair(&QueueOptions::default())?;
        job(
            &mut BlockingIo::new(queue, attached.controller.namespace(1)?),
            &attached,
        )
    };
    let holds_pattern = |expected: bool| {
        with_drive(&|io, attached| {
            let mut bytes = vec![0; LEN];
            io.read_to_slice(&attached.domain, Lba(0), &mut bytes)?;
            assert_eq!(bytes.iter().all(|byte| *byte == 0xda), expected);
            Ok(())
        })
    };
    with_drive(&|io, attached| Ok(io.write_from_slice(&attached.domain, Lba(0), &[0xda; LEN])?))?;

    let address = LBA512.address();
    let work = ["-w", "write", "--size", "1m", "--number-ios", "256"];
    let refused = nvme_perf(&address, &work)?;
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--force"));
    holds_pattern(true)?;

    let forced = nvme_perf(&address, &[&work[..], &["--force"]].concat())?;
    assert!(forced.status.success());
    holds_pattern(false)
}
