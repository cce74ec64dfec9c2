//! What the NVM Express specifications put on the wire and in registers.
//!
//! Plain little-endian structures and constants after the NVM Express Base and NVM Command Set
//! specifications, revision 2.x; each names the structure it lays out. Nothing here does I/O. What
//! a device may set is open: a value that no constant names is carried and printed, never refused.
//!
//! Submission and completion entries and register values hold native integers, so only
//! little-endian hosts are supported. Structures that arrive in a data buffer hold
//! [`zerocopy::little_endian`] integers: they need no alignment and can be viewed in place.

#[cfg(not(target_endian = "little"))]
compile_error!(
    "the NVMe structures here are little-endian in memory: big-endian hosts are unsupported"
);

/// Defines an open set of values: a newtype, its named constants, and how it prints.
macro_rules! open_values {
    (
        $(#[$meta:meta])*
        $name:ident: $repr:ty, $kind:literal {
            $($(#[$const_meta:meta])* $constant:ident = $value:literal, $text:literal;)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $repr);

        impl $name {
            $(
                #[doc = $text]
                $(#[$const_meta])*
                pub const $constant: Self = Self($value);
            )+

            /// The name that the specification gives to this value, if it is one known here.
            #[must_use]
            pub const fn known_name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some($text),)+
                    #[allow(unreachable_patterns, reason = "a set may happen to be full")]
                    _ => None,
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.known_name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, concat!($kind, " {:#04x}"), self.0),
                }
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!(stringify!($name), "({:#04x}, {})"), self.0, self)
            }
        }
    };
}

pub mod command;
pub mod cqe;
pub mod feature;
pub mod identify;
pub mod log;
pub mod opcode;
pub mod registers;
pub mod sqe;
pub mod status;

pub use cqe::Cqe;
pub use sqe::Sqe;
pub use status::Status;
