//! The settings of the software controller in a device string.

use super::grammar::{DeviceStringError, EMULATOR};
use super::options::{Setting, settings};
use super::size::parse_size;
use std::fmt;
use std::path::PathBuf;

/// Where an emulated namespace's blocks are, if not in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backing {
    /// In memory.
    #[default]
    Ram,
    /// Nowhere: commands complete without moving data.
    Null,
}

/// `emu:KEY=VALUE,...`: what is not given is the software controller's own default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EmulatorSettings {
    /// `size`: bytes of each namespace. Without it 1 GiB, or the length of the file; a file with
    /// contents has to have that length.
    pub size: Option<u64>,
    /// `file`: the file that holds the blocks; with `size` a missing or empty one is made that long,
    /// sparse.
    pub file: Option<PathBuf>,
    /// `backing`: where the blocks are without a file.
    pub backing: Backing,
    /// `ns`: the namespace to use, from 1.
    pub namespace: Option<u32>,
    /// `namespaces`: how many there are, all alike.
    pub namespaces: Option<u32>,
    /// `lba`: bytes of a logical block, 512 or 4096.
    pub lba: Option<u32>,
    /// `mqes`: entries of the longest queue, less one (CAP.MQES).
    pub mqes: Option<u16>,
    /// `dstrd`: doorbells are `4 << dstrd` bytes apart (CAP.DSTRD).
    pub dstrd: Option<u8>,
    /// `mpsmin`: the smallest memory page is `4096 << mpsmin` bytes (CAP.MPSMIN).
    pub mpsmin: Option<u8>,
    /// `mdts`: a command moves `2^mdts` smallest pages at most; 0: no limit (Identify, MDTS).
    pub mdts: Option<u8>,
    /// `queues`: I/O queue pairs granted at most.
    pub queues: Option<u16>,
    /// `latency_us`: microseconds that each command takes.
    pub latency_us: Option<u32>,
    /// `iops`: commands a second at most.
    pub iops: Option<u32>,
    /// `vwc`: whether there is a volatile write cache.
    pub volatile_cache: Option<bool>,
    /// `cpu`: the processor that the drive's thread stays on.
    pub cpu: Option<usize>,
}

const KEYS: &[&str] = &[
    "size",
    "file",
    "backing",
    "ns",
    "namespaces",
    "lba",
    "mqes",
    "dstrd",
    "mpsmin",
    "mdts",
    "queues",
    "latency_us",
    "iops",
    "vwc",
    "cpu",
];

impl EmulatorSettings {
    /// Reads what follows `emu:`.
    pub(crate) fn parse(list: &str) -> Result<Self, DeviceStringError> {
        let mut parsed = Self::default();
        if list.is_empty() {
            return Ok(parsed);
        }
        let list = settings(EMULATOR, KEYS, list)?;
        for setting in &list {
            parsed.set(setting)?;
        }
        let given = |key| list.iter().any(|setting| setting.key == key);
        if parsed.file.is_some() && given("backing") {
            return Err(DeviceStringError::Conflict {
                first: "file",
                second: "backing",
                why: "a file is a backing of its own",
            });
        }
        if parsed.file.is_some() && parsed.namespaces.is_some_and(|count| count > 1) {
            return Err(DeviceStringError::Conflict {
                first: "file",
                second: "namespaces",
                why: "a file holds one namespace",
            });
        }
        Ok(parsed)
    }

    fn set(&mut self, setting: &Setting<'_>) -> Result<(), DeviceStringError> {
        let value = setting.value;
        match setting.key {
            "size" => self.size = Some(size(setting)?),
            "file" => self.file = Some(value.into()),
            "backing" => {
                self.backing = match value {
                    "ram" => Backing::Ram,
                    "null" => Backing::Null,
                    _ => return Err(setting.bad("ram or null")),
                }
            }
            "ns" => self.namespace = Some(setting.namespace()?),
            "namespaces" => self.namespaces = Some(setting.number(1, 1024, "1 to 1024")?),
            "lba" => {
                self.lba = match value {
                    "512" => Some(512),
                    "4096" | "4k" => Some(4096),
                    _ => return Err(setting.bad("512 or 4096 bytes")),
                }
            }
            "mqes" => {
                let expected = "the entries of the longest queue less one, 1 to 65534";
                self.mqes = Some(setting.number(1, u16::MAX - 1, expected)?);
            }
            "dstrd" => self.dstrd = Some(setting.number(0, 10, "0 to 10")?),
            "mpsmin" => self.mpsmin = Some(setting.number(0, 4, "0 to 4")?),
            "mdts" => self.mdts = Some(setting.number(0, 20, "0 (no limit) to 20")?),
            "queues" => self.queues = Some(setting.number(1, 4096, "1 to 4096")?),
            "latency_us" => {
                let expected = "microseconds, 0 to 10000000";
                self.latency_us = Some(setting.number(0, 10_000_000, expected)?);
            }
            "iops" => self.iops = Some(setting.number(1, u32::MAX, "commands a second, from 1")?),
            "vwc" => {
                self.volatile_cache = match value {
                    "on" | "1" => Some(true),
                    "off" | "0" => Some(false),
                    _ => return Err(setting.bad("on or off")),
                }
            }
            // The list of keys is the caller's: the one left.
            _ => self.cpu = Some(setting.number(0, 4095, "the number of a processor")?),
        }
        Ok(())
    }
}

fn size(setting: &Setting<'_>) -> Result<u64, DeviceStringError> {
    match parse_size(setting.value) {
        Ok(bytes) if bytes > 0 => Ok(bytes),
        _ => Err(setting.bad("a size from 1 up: bytes, or k, m, g, t for powers of 1,024")),
    }
}

impl fmt::Display for EmulatorSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(EMULATOR)?;
        let mut list = Vec::new();
        let mut add = |key: &str, value: Option<String>| {
            list.extend(value.map(|value| format!("{key}={value}")));
        };
        let backing = (self.backing == Backing::Null).then(|| "null".to_owned());
        let switch = |on: bool| if on { "on" } else { "off" }.to_owned();
        add("size", self.size.map(|value| value.to_string()));
        add(
            "file",
            self.file.as_ref().map(|path| path.display().to_string()),
        );
        add("backing", backing);
        add("ns", self.namespace.map(|value| value.to_string()));
        add("namespaces", self.namespaces.map(|value| value.to_string()));
        add("lba", self.lba.map(|value| value.to_string()));
        add("mqes", self.mqes.map(|value| value.to_string()));
        add("dstrd", self.dstrd.map(|value| value.to_string()));
        add("mpsmin", self.mpsmin.map(|value| value.to_string()));
        add("mdts", self.mdts.map(|value| value.to_string()));
        add("queues", self.queues.map(|value| value.to_string()));
        add("latency_us", self.latency_us.map(|value| value.to_string()));
        add("iops", self.iops.map(|value| value.to_string()));
        add("vwc", self.volatile_cache.map(switch));
        add("cpu", self.cpu.map(|value| value.to_string()));
        if list.is_empty() {
            return Ok(());
        }
        write!(f, ":{}", list.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every key reaches its field, and the whole prints back as it was read.
    #[test]
    fn every_key_is_read_and_printed() {
        let text = "size=1073741824,file=/tmp/a.img,ns=1,namespaces=1,lba=4096,mqes=7,dstrd=10,\
                    mpsmin=1,mdts=1,queues=2,latency_us=10,iops=500000,vwc=off,cpu=1";
        let settings = EmulatorSettings::parse(text).unwrap();
        let expected = EmulatorSettings {
            size: Some(1 << 30),
            file: Some("/tmp/a.img".into()),
            backing: Backing::Ram,
            namespace: Some(1),
            namespaces: Some(1),
            lba: Some(4096),
            mqes: Some(7),
            dstrd: Some(10),
            mpsmin: Some(1),
            mdts: Some(1),
            queues: Some(2),
            latency_us: Some(10),
            iops: Some(500_000),
            volatile_cache: Some(false),
            cpu: Some(1),
        };
        assert_eq!(settings, expected);
        assert_eq!(settings.to_string(), format!("emu:{text}"));
        let null = EmulatorSettings::parse("size=1g,backing=null").unwrap();
        assert_eq!(null.backing, Backing::Null);
        assert_eq!(null.to_string(), "emu:size=1073741824,backing=null");
    }

    /// Numbers outside what the registers hold are refused.
    #[test]
    fn values_out_of_range_are_refused() {
        for text in [
            "mqes=0",
            "mqes=65535",
            "dstrd=11",
            "mdts=-1",
            "lba=1024",
            "size=0",
            "iops=0",
        ] {
            let error = EmulatorSettings::parse(text).unwrap_err();
            assert!(
                matches!(error, DeviceStringError::Value { .. }),
                "{text}: {error}"
            );
        }
    }
}
