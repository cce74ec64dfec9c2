//! Features: what Set Features keeps and Get Features tells.

use super::{Answer, Controller};
use driver::spec::command::FEATURE_SAVE;
use driver::spec::feature::{FeatureId, QueueCounts, Select, TemperatureThreshold};
use driver::spec::identify::NSID_ALL;
use driver::spec::{Sqe, Status};
use std::collections::BTreeMap;

/// Values that were set; the others have their defaults. Kept by identifier and selector.
#[derive(Debug, Default)]
pub(super) struct Features {
    set: BTreeMap<(u8, u8), u32>,
}

/// Over temperature threshold by default: 343 K, 70 degrees.
pub(super) const WARNING_KELVIN: u16 = 343;
/// What Get Features, Supported Capabilities, says of a feature that can be changed.
const CHANGEABLE: u32 = 1 << 2;

impl Features {
    pub(super) fn write_cache(&self) -> bool {
        self.get(FeatureId::VOLATILE_WRITE_CACHE, 0) & 1 != 0
    }

    /// The threshold of over (kind 0) or under (kind 1) temperature, in kelvins.
    pub(super) fn threshold(&self, kind: u8) -> u16 {
        let value = self.get(FeatureId::TEMPERATURE_THRESHOLD, kind);
        TemperatureThreshold::from(value).kelvin()
    }

    /// Whether the host asked to be told of this critical warning (a bit of the SMART log's byte
    /// 0).
    pub(super) fn wants_event(&self, warning: u8) -> bool {
        self.get(FeatureId::ASYNC_EVENT_CONFIGURATION, 0) & u32::from(warning) != 0
    }

    fn get(&self, feature: FeatureId, selector: u8) -> u32 {
        let set = self.set.get(&(feature.0, selector)).copied();
        set.unwrap_or_else(|| default_of(feature, selector))
    }
}

fn default_of(feature: FeatureId, selector: u8) -> u32 {
    match feature {
        // No limit on the arbitration burst.
        FeatureId::ARBITRATION => 7,
        FeatureId::VOLATILE_WRITE_CACHE => 1,
        FeatureId::TEMPERATURE_THRESHOLD if selector == 0 => u32::from(WARNING_KELVIN),
        _ => 0,
    }
}

impl Controller {
    fn knows(&self, feature: FeatureId) -> bool {
        match feature {
            FeatureId::VOLATILE_WRITE_CACHE => self.settings.cache_bytes.is_some(),
            FeatureId::ARBITRATION
            | FeatureId::POWER_MANAGEMENT
            | FeatureId::TEMPERATURE_THRESHOLD
            | FeatureId::ERROR_RECOVERY
            | FeatureId::NUMBER_OF_QUEUES
            | FeatureId::INTERRUPT_COALESCING
            | FeatureId::INTERRUPT_VECTOR_CONFIGURATION
            | FeatureId::WRITE_ATOMICITY_NORMAL
            | FeatureId::ASYNC_EVENT_CONFIGURATION => true,
            _ => false,
        }
    }

    fn queue_grant(&self) -> u32 {
        let less_one = self.settings.queues.saturating_sub(1);
        QueueCounts::new()
            .with_submission(less_one)
            .with_completion(less_one)
            .into()
    }

    /// Which of several values of one feature dword 11 means.
    fn selector(feature: FeatureId, cdw11: u32) -> Result<u8, Status> {
        let threshold = TemperatureThreshold::from(cdw11);
        match feature {
            // The composite temperature, or all sensors; there are no others.
            FeatureId::TEMPERATURE_THRESHOLD => match (threshold.sensor(), threshold.kind()) {
                (0 | 15, kind @ 0..=1) => Ok(kind),
                _ => Err(Status::INVALID_FIELD.with_dnr()),
            },
            _ => Ok(0),
        }
    }

    pub(super) fn get_features(&mut self, sqe: &Sqe) -> Answer {
        let [id, select, ..] = sqe.cdw10.to_le_bytes();
        let feature = FeatureId(id);
        if !self.knows(feature) {
            return Err(Status::INVALID_FIELD.with_dnr());
        }
        let selector = Self::selector(feature, sqe.cdw11)?;
        let queues = feature == FeatureId::NUMBER_OF_QUEUES;
        match Select(select & 7) {
            Select::CURRENT if queues => Ok(self.queue_grant()),
            Select::CURRENT => Ok(self.features.get(feature, selector)),
            // Nothing is saved: the saved values are the defaults.
            Select::DEFAULT | Select::SAVED if queues => Ok(self.queue_grant()),
            Select::DEFAULT | Select::SAVED => Ok(default_of(feature, selector)),
            Select::SUPPORTED => Ok(CHANGEABLE),
            _ => Err(Status::INVALID_FIELD.with_dnr()),
        }
    }

    pub(super) fn set_features(&mut self, sqe: &Sqe) -> Answer {
        let [id, ..] = sqe.cdw10.to_le_bytes();
        let feature = FeatureId(id);
        if !self.knows(feature) {
            return Err(Status::INVALID_FIELD.with_dnr());
        }
        if sqe.cdw10 & FEATURE_SAVE != 0 {
            return Err(Status::FEATURE_NOT_SAVEABLE.with_dnr());
        }
        if sqe.nsid != 0 && sqe.nsid != NSID_ALL {
            return Err(Status::FEATURE_NOT_NAMESPACE.with_dnr());
        }
        let value = sqe.cdw11;
        match feature {
            FeatureId::NUMBER_OF_QUEUES => return self.set_queue_count(value),
            // There is one power state.
            FeatureId::POWER_MANAGEMENT if value & 0x1f != 0 => {
                return Err(Status::INVALID_FIELD.with_dnr());
            }
            FeatureId::VOLATILE_WRITE_CACHE => {
                self.set_write_cache(value & 1 != 0)
                    .map_err(|_| Status::WRITE_FAULT)?;
            }
            _ => {}
        }
        let selector = Self::selector(feature, value)?;
        self.features.set.insert((id, selector), value);
        if matches!(
            feature,
            FeatureId::TEMPERATURE_THRESHOLD | FeatureId::ASYNC_EVENT_CONFIGURATION
        ) {
            self.check_temperature();
        }
        Ok(0)
    }

    fn set_queue_count(&mut self, value: u32) -> Answer {
        let asked = QueueCounts::from(value);
        if asked.submission() == u16::MAX || asked.completion() == u16::MAX {
            return Err(Status::INVALID_FIELD.with_dnr());
        }
        if self.cqs.iter().skip(1).any(Option::is_some) {
            // Only before the first I/O queue, which is a completion queue.
            return Err(Status::COMMAND_SEQUENCE.with_dnr());
        }
        Ok(self.queue_grant())
    }
}
