//! Values of a configuration, each as what its row of the table says it is.

use super::environment::Text;
use super::launcher::Placement;
use super::origin::Origin;
use super::reach::Reach;
use super::shown::{not_text, wrong};
use super::sources::Config;
use super::table::Key;
use super::value::{LogLevel, TlsVersion, Value};
use crate::error::Result;
use crate::types::{ChecksumScope, Role, SharedMemory};
use std::net::IpAddr;
use std::time::Duration;

/// Reads values of a configuration, each as what its row of the table says it is.
pub(super) struct Reader<'a> {
    pub(super) config: &'a Config,
    pub(super) placement: Option<Placement>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(config: &'a Config) -> Result<Reader<'a>> {
        let placement = config.placement();
        if let Some(placement) = &placement {
            placement.launcher.contradiction(&config.environment)?;
        }
        Ok(Reader { config, placement })
    }

    pub(super) fn value(&self, key: Key) -> Result<Option<Value>> {
        let setting = key.setting();
        let Some(found) = self.config.find(key, self.placement.as_ref()) else { return Ok(None) };
        let name = || found.origin.name(setting);
        match found.text? {
            Text::Garbled(text) => Err(not_text(setting, &name(), &text)),
            Text::Valid(text) => setting.kind.parse(&text).map(Some).ok_or_else(|| wrong(setting, &name(), &text)),
        }
    }

    pub(super) fn role(&self) -> Result<Option<Role>> {
        Ok(match self.value(Key::Role)? {
            Some(Value::Role(role)) => Some(role),
            None => None,
            Some(other) => misread(Key::Role, &other),
        })
    }

    pub(super) fn text(&self, key: Key) -> Result<Option<String>> {
        Ok(match self.value(key)? {
            Some(Value::Text(text)) => Some(text),
            None => None,
            Some(other) => misread(key, &other),
        })
    }

    pub(super) fn whole(&self, key: Key) -> Result<Option<u64>> {
        Ok(match self.value(key)? {
            Some(Value::Whole(number)) => Some(number),
            None => None,
            Some(other) => misread(key, &other),
        })
    }

    /// A number whose row keeps it within 32 bits.
    pub(super) fn small(&self, key: Key) -> Result<Option<u32>> {
        Ok(self.whole(key)?.map(|number| u32::try_from(number).expect("the table's maximum is below 2^32")))
    }

    pub(super) fn flag(&self, key: Key) -> Result<bool> {
        Ok(match self.value(key)? {
            Some(Value::Flag(flag)) => flag,
            None => false,
            Some(other) => misread(key, &other),
        })
    }

    /// A time. `None`: nothing is set; within it, `None`: no limit.
    pub(super) fn seconds(&self, key: Key) -> Result<Option<Option<Duration>>> {
        Ok(match self.value(key)? {
            Some(Value::Seconds(span)) => Some(span),
            None => None,
            Some(other) => misread(key, &other),
        })
    }

    pub(super) fn port(&self) -> Result<Option<u16>> {
        Ok(self.whole(Key::SchedPort)?.map(|port| u16::try_from(port).expect("a port is parsed within 16 bits")))
    }

    pub(super) fn addresses(&self) -> Result<Vec<IpAddr>> {
        Ok(match self.value(Key::WorkerIp)? {
            Some(Value::Addresses(addresses)) => addresses,
            None => Vec::new(),
            Some(other) => misread(Key::WorkerIp, &other),
        })
    }

    /// At which addresses a process listens, and what it tells others.
    pub(super) fn reach(&self) -> Result<Reach> {
        Ok(Reach {
            sched_bind: match self.value(Key::SchedBind)? {
                Some(Value::Addresses(addresses)) => addresses,
                None => Vec::new(),
                Some(other) => misread(Key::SchedBind, &other),
            },
            advertise: match self.value(Key::Advertise)? {
                Some(Value::Endpoints(told)) => told,
                None => Vec::new(),
                Some(other) => misread(Key::Advertise, &other),
            },
            port_range: match self.value(Key::PortRange)? {
                Some(Value::Ports(range)) => Some(range),
                None => None,
                Some(other) => misread(Key::PortRange, &other),
            },
            interfaces: match self.value(Key::Ifname)? {
                Some(Value::Interfaces(interfaces)) => Some(interfaces),
                None => None,
                Some(other) => misread(Key::Ifname, &other),
            },
        })
    }

    pub(super) fn device_ip(&self) -> Result<Option<IpAddr>> {
        Ok(match self.value(Key::DeviceIp)? {
            Some(Value::Address(ip)) => Some(ip),
            None => None,
            Some(other) => misread(Key::DeviceIp, &other),
        })
    }

    pub(super) fn log_level(&self) -> Result<LogLevel> {
        Ok(match self.value(Key::Log)? {
            Some(Value::Level(level)) => level,
            None => LogLevel::Warn,
            Some(other) => misread(Key::Log, &other),
        })
    }

    pub(super) fn shared_memory(&self) -> Result<SharedMemory> {
        Ok(match self.value(Key::Shm)? {
            Some(Value::Sharing(mode)) => mode,
            None => SharedMemory::default(),
            Some(other) => misread(Key::Shm, &other),
        })
    }

    pub(super) fn checksums(&self) -> Result<ChecksumScope> {
        Ok(match self.value(Key::Checksums)? {
            Some(Value::Checksums(scope)) => scope,
            None => ChecksumScope::default(),
            Some(other) => misread(Key::Checksums, &other),
        })
    }

    pub(super) fn tls_version(&self) -> Result<Option<TlsVersion>> {
        Ok(match self.value(Key::TlsVersion)? {
            Some(Value::TlsVersion(version)) => Some(version),
            None => None,
            Some(other) => misread(Key::TlsVersion, &other),
        })
    }

    /// How the user knows this setting.
    pub(super) fn name(&self, key: Key) -> String {
        let found = self.config.find(key, self.placement.as_ref());
        found.map_or(Origin::Default, |found| found.origin).name(key.setting())
    }

    /// The source of this setting, if it is not the default.
    pub(super) fn set_by(&self, key: Key) -> Option<Origin> {
        let found = self.config.find(key, self.placement.as_ref())?;
        Some(found.origin).filter(|origin| *origin != Origin::Default)
    }
}

/// The table and this file disagree about a setting's kind: a bug, which the tests find by reading every setting.
pub(super) fn misread(key: Key, value: &Value) -> ! {
    unreachable!("{key:?} was read as {value:?}")
}
