//! PCI addresses: how a function is named on the command line, in messages and in sysfs.

use std::fmt;
use std::str::FromStr;

/// The address of one PCI function: domain, bus, device and function.
///
/// It is written as the kernel writes it. The domain may be left out when it is zero.
///
/// # Examples
///
/// ```
/// use driver::transport::pci::PciAddress;
///
/// let address: PciAddress = "01:00.0".parse()?;
/// assert_eq!(address.to_string(), "0000:01:00.0");
/// assert_eq!(address, "0000:01:00.0".parse()?);
/// # Ok::<(), driver::transport::pci::PciAddressError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

/// Why a text is no PCI address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no PCI address: expected DOMAIN:BUS:DEVICE.FUNCTION such as 0000:01:00.0")]
pub struct PciAddressError {
    text: String,
}

/// Devices on a bus and functions in a device (PCI Local Bus, configuration address format).
const DEVICES: u8 = 32;
const FUNCTIONS: u8 = 8;

impl PciAddress {
    /// The address made of these numbers. `None`: the device or function number is too large.
    #[must_use]
    pub fn new(domain: u32, bus: u8, device: u8, function: u8) -> Option<Self> {
        (device < DEVICES && function < FUNCTIONS).then_some(Self {
            domain,
            bus,
            device,
            function,
        })
    }

    fn from_text(text: &str) -> Option<Self> {
        let (rest, function) = text.split_once('.')?;
        let mut parts = rest.rsplit(':');
        let device = hex(parts.next()?, 2)?;
        let bus = hex(parts.next()?, 2)?;
        // A domain has four digits, and eight behind some bridges (Intel VMD has five).
        let domain = parts.next().map_or(Some(0), |domain| hex(domain, 8))?;
        if parts.next().is_some() {
            return None;
        }
        let byte = |value: u32| u8::try_from(value).ok();
        Self::new(domain, byte(bus)?, byte(device)?, byte(hex(function, 1)?)?)
    }
}

/// A hexadecimal number of at most `digits` digits, without sign or prefix.
fn hex(text: &str, digits: usize) -> Option<u32> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !plain || text.len() > digits {
        return None;
    }
    u32::from_str_radix(text, 16).ok()
}

impl FromStr for PciAddress {
    type Err = PciAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::from_text(text).ok_or_else(|| PciAddressError {
            text: text.to_owned(),
        })
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            domain,
            bus,
            device,
            function,
        } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The forms that people type are understood, and printed as the kernel prints them.
    #[test]
    fn addresses_are_read_and_printed() {
        let cases = [
            ("0000:01:00.0", "0000:01:00.0"),
            ("01:00.0", "0000:01:00.0"),
            ("1:0.7", "0000:01:00.7"),
            ("10000:E1:1f.3", "10000:e1:1f.3"),
        ];
        for (text, printed) in cases {
            assert_eq!(
                text.parse::<PciAddress>().unwrap().to_string(),
                printed,
                "{text}"
            );
        }
    }

    /// What is no address is refused, with an error that shows it.
    #[test]
    fn other_texts_are_refused() {
        let cases = [
            "",
            ".",
            ":.",
            "01:00",
            "01:00.8",
            "01:20.0",
            "100:00.0",
            "0:0:1:0.0",
            "+1:00.0",
            "0x1:00.0",
            "01:00.0 ",
            "01:00.00",
            "123456789:01:00.0",
            "01:00.-1",
            "é1:00.0",
            "../01:00.0",
            "emu",
        ];
        for text in cases {
            let error = text.parse::<PciAddress>().unwrap_err();
            assert!(error.to_string().contains(&format!("{text:?}")), "{error}");
        }
    }

    proptest! {
        /// Printing and reading give the same address; no text causes a panic.
        #[test]
        fn printing_and_reading_agree(
            domain in any::<u32>(), bus in any::<u8>(), device in 0u8..32, function in 0u8..8,
            noise in "[0-9a-fA-F:.x]{0,14}",
        ) {
            let address = PciAddress::new(domain, bus, device, function).unwrap();
            prop_assert_eq!(address.to_string().parse::<PciAddress>().unwrap(), address);
            if let Ok(other) = noise.parse::<PciAddress>() {
                prop_assert_eq!(other.to_string().parse::<PciAddress>().unwrap(), other);
            }
        }
    }
}
