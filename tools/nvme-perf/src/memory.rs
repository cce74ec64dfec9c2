//! Whether this machine has the memory that the buffers take, from `/proc/meminfo`.

use device::format_size;
use std::fs;

/// The buffers are more than this machine should give.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the buffers take {} of memory, and this machine has {} to give: lower --bs, --iodepth or \
     --numjobs",
    format_size(*needed),
    format_size(*allowed)
)]
pub struct MemoryShort {
    /// Bytes of all buffers.
    pub needed: u64,
    /// Bytes that they may take.
    pub allowed: u64,
}

/// Refuses buffers beyond half of the memory that is available, free huge pages apart: those are
/// for nothing else.
///
/// # Errors
/// [`MemoryShort`]. Where `/proc` does not tell, nothing is refused.
pub fn check(needed: u64) -> Result<(), MemoryShort> {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    match allowed(&meminfo) {
        Some(allowed) if needed > allowed => Err(MemoryShort { needed, allowed }),
        _ => Ok(()),
    }
}

fn allowed(meminfo: &str) -> Option<u64> {
    // Lines as in `MemAvailable:   16 kB`; HugePages_Free is a count.
    let number = |name: &str| {
        let value = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        value.split_whitespace().next()?.parse::<u64>().ok()
    };
    let available = number("MemAvailable:")?.saturating_mul(1024);
    let pages = number("HugePages_Free:").unwrap_or(0);
    let page = number("Hugepagesize:").unwrap_or(0).saturating_mul(1024);
    Some((available / 2).saturating_add(pages.saturating_mul(page)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Half of what is available counts, and all free huge pages; without the line there is no limit.
    #[test]
    fn half_of_the_memory_counts() {
        let meminfo = "MemTotal: 9000 kB\nMemAvailable:    4000 kB\n";
        assert_eq!(allowed(meminfo), Some(2000 << 10));
        let huge = format!("{meminfo}HugePages_Free:      3\nHugepagesize:       2048 kB\n");
        assert_eq!(allowed(&huge), Some((2000 << 10) + (6 << 20)));
        assert_eq!(allowed(""), None);
        assert!(check(4096).is_ok() && check(u64::MAX).is_err());
    }
}
