//! What a job's thread used of the processor, from `/proc/thread-self`.

use std::fs;

/// Counters of one thread since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadUsage {
    /// Time in user mode, in clock ticks.
    pub user_ticks: u64,
    /// Time in the kernel, in clock ticks.
    pub system_ticks: u64,
    /// Faults served without I/O.
    pub minor_faults: u64,
    /// Faults that took I/O.
    pub major_faults: u64,
    /// Times it was taken off a processor, willingly or not.
    pub context_switches: u64,
}

impl ThreadUsage {
    /// The counters of this thread; zeros where `/proc` does not tell.
    #[must_use]
    pub fn now() -> Self {
        let read = |name| fs::read_to_string(format!("/proc/thread-self/{name}"));
        let stat = read("stat").unwrap_or_default();
        let status = read("status").unwrap_or_default();
        Self::parse(&stat, &status)
    }

    fn parse(stat: &str, status: &str) -> Self {
        // After the name in parentheses, which may hold anything: the state, then numbers (proc(5)).
        let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let number = |index: usize| fields.get(index).and_then(|n| n.parse().ok()).unwrap_or(0);
        let switches = |line: &str| {
            let (name, count) = line.split_once(':')?;
            let counts = name.ends_with("voluntary_ctxt_switches");
            counts.then(|| count.trim().parse::<u64>().unwrap_or(0))
        };
        Self {
            minor_faults: number(7),
            major_faults: number(9),
            user_ticks: number(11),
            system_ticks: number(12),
            context_switches: status.lines().filter_map(switches).sum(),
        }
    }

    /// What was used since `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            user_ticks: self.user_ticks.saturating_sub(before.user_ticks),
            system_ticks: self.system_ticks.saturating_sub(before.system_ticks),
            minor_faults: self.minor_faults.saturating_sub(before.minor_faults),
            major_faults: self.major_faults.saturating_sub(before.major_faults),
            context_switches: self
                .context_switches
                .saturating_sub(before.context_switches),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fields are those that proc(5) names, whatever the thread is called.
    #[test]
    fn the_fields_are_found() {
        let stat = "12 (a) b (c) R 1 2 3 4 5 6 700 8 900 10 1100 1200 13 14";
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t7\n";
        let usage = ThreadUsage::parse(stat, status);
        let expected = ThreadUsage {
            user_ticks: 1100,
            system_ticks: 1200,
            minor_faults: 700,
            major_faults: 900,
            context_switches: 12,
        };
        assert_eq!(usage, expected);
        assert_eq!(ThreadUsage::parse("", ""), ThreadUsage::default());
    }
}
