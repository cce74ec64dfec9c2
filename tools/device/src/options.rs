//! `KEY=VALUE,...`: the part of a device string that every kind of device reads the same way.

use super::grammar::DeviceStringError;
use std::collections::BTreeSet;

/// One `KEY=VALUE`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting<'a> {
    pub(crate) key: &'a str,
    pub(crate) value: &'a str,
}

/// Splits a list of settings. Each key is one of `allowed` and comes once at most.
pub(crate) fn settings<'a>(
    device: &'static str,
    allowed: &'static [&'static str],
    list: &'a str,
) -> Result<Vec<Setting<'a>>, DeviceStringError> {
    let mut seen = BTreeSet::new();
    let mut settings = Vec::new();
    for item in list.split(',') {
        let (key, value) = match item.split_once('=') {
            Some((key, value)) if !value.is_empty() => (key, value),
            _ => {
                let item = item.to_owned();
                return Err(DeviceStringError::NoValue { device, item });
            }
        };
        if !allowed.contains(&key) {
            return Err(DeviceStringError::UnknownKey {
                device,
                key: key.to_owned(),
                allowed,
            });
        }
        if !seen.insert(key) {
            let key = key.to_owned();
            return Err(DeviceStringError::Repeated { device, key });
        }
        settings.push(Setting { key, value });
    }
    Ok(settings)
}

impl Setting<'_> {
    /// The error for a value that is not what it has to be.
    pub(crate) fn bad(&self, expected: &'static str) -> DeviceStringError {
        DeviceStringError::Value {
            key: self.key.to_owned(),
            value: self.value.to_owned(),
            expected,
        }
    }

    /// A whole number from `min` to `max`.
    pub(crate) fn number<T>(
        &self,
        min: T,
        max: T,
        expected: &'static str,
    ) -> Result<T, DeviceStringError>
    where
        T: std::str::FromStr + PartialOrd,
    {
        match self.value.parse() {
            Ok(number) if number >= min && number <= max => Ok(number),
            _ => Err(self.bad(expected)),
        }
    }

    /// The identifier of a namespace.
    pub(crate) fn namespace(&self) -> Result<u32, DeviceStringError> {
        self.number(1, u32::MAX - 1, "a namespace identifier from 1")
    }
}
