//! Sizes: `4096`, `4k`, `1.5g`, always in powers of 1,024.

use parse_size::{ByteSuffix, Config};

/// Why a text is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a size: write bytes, or k, m, g, t for powers of 1,024, as in 4k or 1.5g")]
pub struct SizeError {
    text: String,
}

/// Reads a size in bytes. The units k, m, g, t, p (and KB, KiB, ...) are powers of 1,024.
///
/// # Errors
/// [`SizeError`] if it is no size, or more than 64 bits hold.
///
/// # Examples
///
/// ```
/// assert_eq!(device::parse_size("4k")?, 4096);
/// assert_eq!(device::parse_size("1GiB")?, 1 << 30);
/// # Ok::<(), device::SizeError>(())
/// ```
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let config = Config::new()
        .with_binary()
        .with_byte_suffix(ByteSuffix::Allow);
    config.parse_size(text).map_err(|_| SizeError {
        text: text.to_owned(),
    })
}

const UNITS: [(&str, u64); 5] = [
    ("PiB", 1 << 50),
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
];

/// A size for people: `4 KiB`, `1.86 TiB`, `520 B`.
#[must_use]
pub fn format_size(bytes: u64) -> String {
    let Some((name, unit)) = UNITS.into_iter().find(|&(_, unit)| bytes >= unit) else {
        return format!("{bytes} B");
    };
    if bytes.is_multiple_of(unit) {
        format!("{} {name}", bytes / unit)
    } else {
        #[expect(clippy::cast_precision_loss, reason = "two decimals are shown")]
        let value = bytes as f64 / unit as f64;
        format!("{value:.2} {name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Units are binary however they are written, and nonsense is refused with a hint.
    #[test]
    fn sizes_are_binary() {
        let cases = [
            ("0", 0),
            ("4096", 4096),
            ("4k", 4096),
            ("4K", 4096),
            ("4KiB", 4096),
            ("4kb", 4096),
            ("1m", 1 << 20),
            ("1.5g", 3 << 29),
            ("2T", 2 << 40),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "k", "-1", "4x", "99999999999t", "four"] {
            let error = parse_size(text).unwrap_err().to_string();
            assert!(error.contains("1,024"), "{text}: {error}");
        }
    }

    /// Whole units print whole, others with two decimals.
    #[test]
    fn sizes_print_for_people() {
        assert_eq!(format_size(520), "520 B");
        assert_eq!(format_size(4096), "4 KiB");
        assert_eq!(format_size(1 << 30), "1 GiB");
        assert_eq!(format_size(3 << 29), "1.50 GiB");
        assert_eq!(format_size(u64::MAX), "16384.00 PiB");
    }
}
