//! What a device seems to hold, by the marks that formats leave near its start.

/// A mark of a known format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature {
    /// Its first byte on the device.
    pub at: u64,
    /// What it belongs to, with an article.
    pub what: &'static str,
}

const MBR: &str = "an MBR partition table or a boot sector";
const GPT: &str = "a GPT partition table";
const LVM: &str = "an LVM physical volume";
const BLOCKFS: &str = "a blockfs volume";

/// Offset, bytes there, what they mean; what says more comes first.
const SIGNATURES: &[(usize, &[u8], &str)] = &[
    (0, b"DBELLBFS", BLOCKFS),
    // Its second superblock.
    (1 << 20, b"DBELLBFS", BLOCKFS),
    (512, b"EFI PART", GPT),
    (4096, b"EFI PART", GPT),
    (1080, &[0x53, 0xef], "an ext2, ext3 or ext4 filesystem"),
    (0, b"XFSB", "an XFS filesystem"),
    (65_600, b"_BHRfS_M", "a btrfs filesystem"),
    // The label is in one of the first four sectors of 512 bytes.
    (512, b"LABELONE", LVM),
    (0, b"LABELONE", LVM),
    (1024, b"LABELONE", LVM),
    (1536, b"LABELONE", LVM),
    (0, b"LUKS", "a LUKS volume"),
    (4096, &[0xfc, 0x4e, 0x2b, 0xa9], "a Linux RAID member"),
    (4086, b"SWAPSPACE2", "swap space"),
    (510, &[0x55, 0xaa], MBR),
];

/// The first known signature in `start`, the first bytes of a device; with the first 1 MiB and 8 bytes
/// none is missed.
///
/// # Examples
///
/// ```
/// let mut start = vec![0; 4096];
/// assert_eq!(device::signature(&start), None);
/// start[..4].copy_from_slice(b"XFSB");
/// assert_eq!(device::signature(&start).map(|found| found.what), Some("an XFS filesystem"));
/// ```
#[must_use]
pub fn signature(start: &[u8]) -> Option<Signature> {
    let found = SIGNATURES.iter().find(|(offset, signature, _)| {
        start
            .get(*offset..)
            .is_some_and(|rest| rest.starts_with(signature))
    });
    found.map(|&(offset, _, what)| Signature {
        at: offset as u64,
        what,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each signature is found where it belongs and named, and nowhere else.
    #[test]
    fn each_is_found_at_its_place() {
        for &(offset, bytes, what) in SIGNATURES {
            let mut start = vec![0; (1 << 20) + 8];
            start[offset..offset + bytes.len()].copy_from_slice(bytes);
            let at = offset as u64;
            assert_eq!(signature(&start), Some(Signature { at, what }));
            start.insert(0, 0);
            assert_eq!(signature(&start), None, "{what}, moved by a byte");
            assert_eq!(signature(&[]), None);
        }
    }

    /// A GPT comes with a protective MBR, and is called a GPT.
    #[test]
    fn what_says_more_wins() {
        let mut start = vec![0; 4096];
        start[510..512].copy_from_slice(&[0x55, 0xaa]);
        assert_eq!(signature(&start).map(|found| found.what), Some(MBR));
        start[512..520].copy_from_slice(b"EFI PART");
        assert_eq!(signature(&start).map(|found| found.what), Some(GPT));
    }
}
