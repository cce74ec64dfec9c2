//! Identify data structures: controller, namespace, lists and descriptors.
//!
//! A device fills these: every number in them is checked by whoever uses it.

mod controller;
mod namespace;

pub use controller::IdentifyController;
pub use namespace::{IdentifyNamespace, LbaFormat};

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

open_values! {
    /// CNS: which structure Identify asks for.
    Cns: u8, "CNS" {
        NAMESPACE = 0x00, "Identify Namespace";
        CONTROLLER = 0x01, "Identify Controller";
        ACTIVE_NAMESPACES = 0x02, "Active Namespace ID list";
        NAMESPACE_DESCRIPTORS = 0x03, "Namespace Identification Descriptor list";
        IOCS_NAMESPACE = 0x05, "I/O Command Set specific Identify Namespace";
        IOCS_CONTROLLER = 0x06, "I/O Command Set specific Identify Controller";
        ALLOCATED_NAMESPACES = 0x10, "Allocated Namespace ID list";
        ALLOCATED_NAMESPACE = 0x11, "Identify Namespace of an allocated namespace";
        CONTROLLERS = 0x13, "Controller list";
        IO_COMMAND_SETS = 0x1c, "Identify I/O Command Set";
    }
}

/// Bytes that every Identify command returns.
pub const IDENTIFY_LEN: usize = 4096;

/// The NSID that stands for all namespaces.
pub const NSID_ALL: u32 = 0xffff_ffff;

/// The text of an ASCII field: up to the first zero, without outer spaces, and whatever a terminal
/// might act on replaced by `?`.
#[must_use]
pub fn ascii(field: &[u8]) -> String {
    let text = field.split(|&byte| byte == 0).next().unwrap_or_default();
    let printable = |&byte: &u8| match byte {
        b' '..=b'~' => char::from(byte),
        _ => '?',
    };
    text.iter()
        .map(printable)
        .collect::<String>()
        .trim()
        .to_owned()
}

/// Namespace List (CNS 02h): up to 1024 identifiers, ascending, ended by zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct NamespaceList {
    /// The identifiers.
    pub nsid: [U32; 1024],
}

impl NamespaceList {
    /// The identifiers up to the first zero.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.nsid
            .iter()
            .map(|nsid| nsid.get())
            .take_while(|&nsid| nsid != 0)
    }
}

/// A Namespace Identification Descriptor (CNS 03h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NamespaceId<'a> {
    /// NIDT 1: IEEE EUI-64.
    Eui64([u8; 8]),
    /// NIDT 2: namespace globally unique identifier.
    Nguid([u8; 16]),
    /// NIDT 3: namespace UUID.
    Uuid([u8; 16]),
    /// NIDT 4: command set identifier; 0: NVM.
    CommandSet(u8),
    /// A type that is not known here, or of another length than it should be.
    Other {
        /// NIDT: the type.
        kind: u8,
        /// NID: its bytes.
        bytes: &'a [u8],
    },
}

/// NIDT of an EUI-64.
pub const NIDT_EUI64: u8 = 1;
/// NIDT of an NGUID.
pub const NIDT_NGUID: u8 = 2;
/// NIDT of a UUID.
pub const NIDT_UUID: u8 = 3;
/// NIDT of a command set identifier.
pub const NIDT_CSI: u8 = 4;

/// Walks the descriptors of a Namespace Identification Descriptor list.
///
/// Ends at a type or length of zero, or where a descriptor would pass the end of `list`.
pub fn namespace_ids(list: &[u8]) -> impl Iterator<Item = NamespaceId<'_>> {
    let mut rest = list;
    std::iter::from_fn(move || {
        let (&[kind, len, _, _], body) = rest.split_first_chunk::<4>()?;
        if kind == 0 || len == 0 {
            return None;
        }
        let (bytes, after) = body.split_at_checked(usize::from(len))?;
        rest = after;
        let other = NamespaceId::Other { kind, bytes };
        Some(match (kind, bytes) {
            (NIDT_EUI64, _) => bytes.try_into().map_or(other, NamespaceId::Eui64),
            (NIDT_NGUID, _) => bytes.try_into().map_or(other, NamespaceId::Nguid),
            (NIDT_UUID, _) => bytes.try_into().map_or(other, NamespaceId::Uuid),
            (NIDT_CSI, &[csi]) => NamespaceId::CommandSet(csi),
            _ => other,
        })
    })
}

const _: () = assert!(size_of::<NamespaceList>() == IDENTIFY_LEN);

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    /// Text from a device is trimmed and cannot carry control characters to a terminal.
    #[test]
    fn ascii_fields_are_tamed() {
        assert_eq!(ascii(b"  Model 1  \0junk"), "Model 1");
        assert_eq!(ascii(b"a\x1b[31mb"), "a?[31mb");
    }

    /// Descriptors are walked; a length past the end, or wrong for its type, does no harm.
    #[test]
    fn hostile_descriptor_lists_end() {
        let mut list = vec![NIDT_EUI64, 8, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
        list.extend([NIDT_UUID, 3, 0, 0, 9, 9, 9]);
        list.extend([NIDT_CSI, 1, 0, 0, 2]);
        list.extend([NIDT_NGUID, 255, 0, 0, 1]);
        let ids: Vec<_> = namespace_ids(&list).collect();
        assert_eq!(ids[0], NamespaceId::Eui64([1, 2, 3, 4, 5, 6, 7, 8]));
        assert_eq!(
            ids[1],
            NamespaceId::Other {
                kind: NIDT_UUID,
                bytes: &[9, 9, 9]
            }
        );
        assert_eq!(ids[2], NamespaceId::CommandSet(2));
        assert_eq!(ids.len(), 3);
        assert_eq!(namespace_ids(&[0; 4096]).count(), 0);
        assert_eq!(namespace_ids(&[1, 2, 3]).count(), 0);
    }

    /// A full namespace list has no terminating zero and still ends.
    #[test]
    fn namespace_lists_end() {
        let mut list = NamespaceList::new_zeroed();
        assert_eq!(list.iter().count(), 0);
        list.nsid = [U32::new(7); 1024];
        assert_eq!(list.iter().count(), 1024);
    }
}
