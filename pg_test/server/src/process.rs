//! The state of a process as Linux reports it.

use nix::time::ClockId;
use nix::unistd::Pid;
use std::time::Duration;

/// The fields of `/proc/PID/stat` from the third, the state, on; none if the process is gone.
fn fields(pid: i32) -> Vec<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // "pid (name) state ...", where the name may contain spaces and brackets.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    fields.split_whitespace().map(str::to_owned).collect()
}

/// Whether a process is gone, or only waits to be reaped by its parent.
pub fn has_ended(pid: i32) -> bool {
    fields(pid).first().is_none_or(|state| state == "Z")
}

/// Whether a process is stopped by SIGSTOP.
pub fn is_stopped(pid: i32) -> bool {
    fields(pid).first().is_some_and(|state| state == "T")
}

pub(crate) fn parent(pid: i32) -> Option<u32> {
    fields(pid).get(1)?.parse().ok()
}

/// The children of a process.
pub fn children(pid: i32) -> Vec<i32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    children.split_whitespace().map(|child| child.parse().expect("a process id")).collect()
}

/// The title of a process.
pub fn title(pid: i32) -> String {
    let title = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&title).into_owned()
}

/// The processor time that a process has used, in hundredths of a second.
#[track_caller]
pub fn processor_ticks(pid: i32) -> u64 {
    let fields = fields(pid);
    assert!(!fields.is_empty(), "process {pid} is gone");
    // utime and stime, the 14th and 15th of all fields.
    fields[11..13].iter().map(|field| field.parse::<u64>().expect("ticks")).sum()
}

/// The processor time that a process has used, to the nanosecond.
#[track_caller]
pub fn processor_time(pid: i32) -> Duration {
    let clock = ClockId::pid_cpu_clock_id(Pid::from_raw(pid)).expect("the process is there");
    clock.now().expect("the process is there").into()
}

/// The most memory that a process has had in use at once, in bytes.
#[track_caller]
pub fn peak_memory(pid: i32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next());
    peak.expect("a process with memory").parse::<usize>().expect("kB") * 1_024
}
