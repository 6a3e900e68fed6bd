//! HCCL's start by its cluster manager (`MS_HCCL_CM_INIT`): its port.

use crate::error::{Error, Result};

/// The highest port that HCCL's cluster manager takes.
const CHIEF_PORT_MAX: u16 = 65520;

/// The chief's port: the one above the scheduler's. `name` is how the user knows the setting of the scheduler's port.
pub fn hccl_chief_port(sched_port: u16, name: &str) -> Result<u16> {
    sched_port.checked_add(1).filter(|port| *port <= CHIEF_PORT_MAX).ok_or_else(|| {
        Error::config(format!(
            "{name} is \"{sched_port}\", which leaves no port for HCCL's cluster manager: expected at most {}, for its \
             port is the one above and at most {CHIEF_PORT_MAX}",
            CHIEF_PORT_MAX - 1
        ))
    })
}

#[cfg(test)]
mod tests {
    use crate::config::{Config, Settings};
    use crate::error::Result;

    fn settings(port: &str, cm: &str, workers: &str) -> Result<Settings> {
        let mut config = Config::new();
        config.load_env([
            ("MS_ROLE", "MS_WORKER"),
            ("MS_SCHED_HOST", "10.0.0.1"),
            ("MS_SCHED_PORT", port),
            ("MS_WORKER_NUM", workers),
            ("MS_HCCL_CM_INIT", cm),
            ("DEVICE_ID", "3"),
        ]);
        config.settings()
    }

    #[test]
    fn the_chiefs_port_is_the_one_above() {
        assert_eq!(settings("8118", "1", "2").unwrap().hccl_chief_port(8118).unwrap(), 8119);
        assert!(settings("65519", "1", "2").is_ok());
        assert_eq!(
            settings("65520", "1", "2").unwrap_err().message(),
            "MS_SCHED_PORT is \"65520\", which leaves no port for HCCL's cluster manager: expected at most 65519, for its \
             port is the one above and at most 65520"
        );
        let without = settings("65535", "0", "2").unwrap();
        assert!(without.hccl_chief_port(65535).is_err(), "the port above would be none at all");
    }
}
