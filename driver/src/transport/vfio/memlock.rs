//! The locked-memory limit: memory that a device may touch is locked, and counts against it.

use super::SetupError;
use super::facts::Host;
use std::fs;

/// CAP_IPC_LOCK's bit in a capability set (linux/capability.h).
const CAP_IPC_LOCK: u32 = 14;

/// How much memory this process may lock, and has locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Memlock {
    /// RLIMIT_MEMLOCK in bytes; `None`: no limit, or this process is above it.
    pub limit: Option<u64>,
    /// Bytes locked already.
    pub locked: u64,
}

impl Memlock {
    /// This process's limit and what it has locked.
    pub(super) fn of_this_process(host: &Host) -> Self {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
        let dir = host.proc.join("self");
        let status = fs::read_to_string(dir.join("status")).unwrap_or_default();
        let uid_map = fs::read_to_string(dir.join("uid_map")).unwrap_or_default();
        Self::from_texts(limit, &status, &uid_map)
    }

    fn from_texts(limit: Option<u64>, status: &str, uid_map: &str) -> Self {
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        // VFIO's type1 IOMMU counts in `locked_vm`, which procfs shows as VmLck.
        let locked = field("VmLck:")
            .and_then(|text| text.trim().strip_suffix("kB"))
            .and_then(|text| text.trim().parse::<u64>().ok())
            .map_or(0, |kib| kib.saturating_mul(1024));
        let capable = field("CapEff:")
            .and_then(|text| u64::from_str_radix(text.trim(), 16).ok())
            .is_some_and(|set| set >> CAP_IPC_LOCK & 1 == 1);
        // The capability counts in the first user namespace only, not in that of a container.
        let first_namespace = uid_map.split_whitespace().eq(["0", "0", "4294967295"]);
        let limit = limit.filter(|_| !(capable && first_namespace));
        Self { limit, locked }
    }

    /// Whether `need` more bytes can be locked.
    ///
    /// # Errors
    /// [`SetupError::MemlockTooLow`] if they cannot.
    pub(super) fn check(self, need: u64) -> Result<(), SetupError> {
        let Self { limit, locked } = self;
        match limit {
            Some(limit) if need > limit.saturating_sub(locked) => Err(SetupError::MemlockTooLow {
                need,
                limit,
                locked,
            }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tx\nVmLck:\t      64 kB\nCapEff:\t0000000000000000\n";
    const ROOT: &str = "VmLck:\t       0 kB\nCapEff:\t000001ffffffffff\n";
    const FIRST: &str = "         0          0 4294967295\n";

    /// An ordinary user's room is the limit less what is locked; the error names all three.
    #[test]
    fn an_ordinary_user_has_the_limit() {
        let state = Memlock::from_texts(Some(131_072), STATUS, FIRST);
        assert_eq!(
            state,
            Memlock {
                limit: Some(131_072),
                locked: 65_536
            }
        );
        assert!(state.check(65_536).is_ok());
        let text = state.check(65_537).unwrap_err().to_string();
        for part in [
            "65537",
            "131072",
            "65536",
            "129 KiB",
            "ulimit -l",
            "LimitMEMLOCK=",
        ] {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
    }

    /// Root is above the limit, but not root of a container's user namespace.
    #[test]
    fn root_is_exempt_in_the_first_namespace_only() {
        assert_eq!(Memlock::from_texts(Some(1), ROOT, FIRST).limit, None);
        assert_eq!(
            Memlock::from_texts(Some(1), ROOT, "0 100000 65536\n").limit,
            Some(1)
        );
    }

    /// No limit and a status that cannot be read let everything pass; the kernel decides then.
    #[test]
    fn what_is_unknown_does_not_stand_in_the_way() {
        assert!(
            Memlock::from_texts(None, STATUS, FIRST)
                .check(u64::MAX)
                .is_ok()
        );
        assert_eq!(Memlock::from_texts(Some(7), "VmLck: x\n", "").locked, 0);
    }
}
