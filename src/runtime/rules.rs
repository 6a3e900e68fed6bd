//! What the scheduler's brain is told of the settings.

use crate::collective::Thresholds;
use crate::config::Settings;
use crate::membership::{self, Rules};
use crate::net::host;
use crate::wire::Agreed;

/// The rules of the job that these settings describe.
pub(super) fn rules(settings: &Settings) -> Rules {
    let limits = settings.store_limits;
    // If all are on one host, then the scheduler is there, too, as a rule; else they choose less well.
    let ranks = settings.worker_num.saturating_add(settings.server_num);
    Rules {
        job_id: settings.job_id.clone(),
        worker_num: settings.worker_num,
        server_num: settings.server_num,
        recovery: settings.enable_recovery,
        durable: settings.enable_recovery,
        forming_timeout: settings.forming_timeout,
        agreed: Agreed {
            heartbeat_timeout_ms: settings.heartbeat_timeout.as_millis() as u64,
            checksums: settings.checksums,
            thresholds: Thresholds::default().to_array().to_vec(),
            store_key_max: limits.key as u64,
            store_value_max: limits.value as u64,
        },
        one_host: Thresholds::for_one_host(ranks, host::cores()).to_array().to_vec(),
        store: membership::StoreLimits {
            key_max: limits.key,
            value_max: limits.value,
            total_max: usize::try_from(limits.total).unwrap_or(usize::MAX),
        },
    }
}
