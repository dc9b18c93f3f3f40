//! What the operating system says about this process. Read when somebody looks, never counted along the way.

use std::{fs, sync::atomic::AtomicU64};

use jiff::Timestamp;
use prometheus_client::{metrics::gauge::Gauge, registry::Registry};

type FloatGauge = Gauge<f64, AtomicU64>;

/// Linux counts processor time in hundredths of a second, whatever the kernel's own clock does.
const TICKS_PER_SECOND: f64 = 100.0;

#[derive(Debug)]
pub(super) struct Process {
    resident: Gauge,
    virtual_memory: Gauge,
    cpu_seconds: FloatGauge,
    open_files: Gauge,
}

impl Process {
    pub(super) fn register(registry: &mut Registry, started: Timestamp) -> Self {
        let process = Self {
            resident: Gauge::default(),
            virtual_memory: Gauge::default(),
            cpu_seconds: FloatGauge::default(),
            open_files: Gauge::default(),
        };
        let start = Gauge::<i64>::default();
        start.set(started.as_second());
        registry.register("process_resident_memory_bytes", "Resident memory", process.resident.clone());
        registry.register("process_virtual_memory_bytes", "Virtual memory", process.virtual_memory.clone());
        registry.register("process_cpu_seconds_total", "Processor time spent", process.cpu_seconds.clone());
        registry.register("process_open_fds", "Open file descriptors", process.open_files.clone());
        registry.register("process_start_time_seconds", "When the server started, in Unix time", start);
        process
    }

    /// Leaves alone what cannot be read: there is no /proc outside Linux.
    pub(super) fn refresh(&self) {
        if let Ok(status) = fs::read_to_string("/proc/self/status") {
            set_kilobytes(&self.resident, &status, "VmRSS:");
            set_kilobytes(&self.virtual_memory, &status, "VmSize:");
        }
        if let Some(seconds) = fs::read_to_string("/proc/self/stat").ok().as_deref().and_then(cpu_seconds) {
            self.cpu_seconds.set(seconds);
        }
        if let Ok(files) = fs::read_dir("/proc/self/fd") {
            self.open_files.set(i64::try_from(files.count()).unwrap_or(i64::MAX));
        }
    }
}

fn set_kilobytes(gauge: &Gauge, status: &str, field: &str) {
    let line = status.lines().find_map(|it| it.strip_prefix(field));
    if let Some(kilobytes) = line.and_then(|it| it.trim().strip_suffix(" kB")?.parse::<i64>().ok()) {
        gauge.set(kilobytes.saturating_mul(1024));
    }
}

/// User and system time; the fields are counted after the program's name, which may hold spaces.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_read_past_a_name_with_spaces() {
        let stat = "1 (a b) c) S 1 1 1 0 -1 4194560 1 2 3 4 150 50 0 0 20 0 1 0";
        assert_eq!(cpu_seconds(stat), Some(2.0));
        assert_eq!(cpu_seconds("nonsense"), None);
    }
}
