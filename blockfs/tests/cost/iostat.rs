//! Statistics that are off cost nothing.

use crate::callgrind::Example;

/// How often the example calls each function.
const CALLS: u64 = 1000;

/// `Off` runs exactly as many instructions as a path that was written without statistics; what the
/// others cost is printed, and shows that the measurement would notice.
#[test]
fn off_costs_no_instruction() {
    let example = Example::build("iostat_cost").unwrap();
    let count = |function| {
        let all = example.count(function, &[]).unwrap().instructions;
        assert!(all >= CALLS, "{function} was not found in the example");
        all
    };
    let hand_written = count("cost_handwritten");
    let off = count("cost_off");
    println!("instructions a 4 KiB read, look-up, submission and completion:");
    let show = |what, all: u64| {
        let more = i128::from(all) - i128::from(hand_written);
        let per_call = |n: i128| n as f64 / CALLS as f64;
        println!(
            "  {what:24} {:7.2}  {:+7.2}",
            per_call(all.into()),
            per_call(more)
        );
    };
    show("written without", hand_written);
    show("Off", off);
    let switched_off = count("cost_switched_off");
    show("Switchable, off", switched_off);
    let per_queue = count("cost_per_queue");
    show("PerQueue, without clock", per_queue);
    show("without, by the iterator", count("cost_iterator"));

    assert_eq!(
        off, hand_written,
        "statistics that are off cost instructions"
    );
    assert!(switched_off > hand_written && per_queue > switched_off);
}
