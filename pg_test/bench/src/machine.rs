//! The machine and the build, as the page names them.

use std::fs::read_to_string;
use std::process::Command;
use std::thread::available_parallelism;

/// Processor, cores, memory, clock source, system.
pub fn machine() -> String {
    let memory_kib: f64 = after("/proc/meminfo", "MemTotal:").trim_end_matches(" kB").parse().unwrap_or(0.0);
    let clock = read("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    format!(
        "{}, {} cores, {:.0} GiB, clock source {}; {}, Linux {}",
        after("/proc/cpuinfo", "model name").trim_start_matches([' ', '\t', ':']),
        available_parallelism().map_or(1, usize::from),
        memory_kib / 1_048_576.0,
        clock.trim(),
        after("/etc/os-release", "PRETTY_NAME=").trim_matches('"'),
        read("/proc/sys/kernel/osrelease").trim()
    )
}

/// The commit, with a word if there are changes, and the compiler. The figures of earlier runs are no changes.
pub fn build() -> String {
    let changes = output("git", &["status", "--porcelain", "--", ".", ":!docs", ":!README.md"]);
    format!(
        "commit {}{}, {}",
        output("git", &["rev-parse", "--short", "HEAD"]),
        if changes.is_empty() { "" } else { ", with changes" },
        output("rustc", &["--version"])
    )
}

fn read(path: &str) -> String {
    read_to_string(path).unwrap_or_default()
}

/// The rest of the first line that begins so.
fn after(path: &str, begin: &str) -> String {
    read(path).lines().find_map(|line| line.strip_prefix(begin)).unwrap_or_default().trim().to_owned()
}

fn output(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).current_dir(crate::blocks::root()).output();
    output.map_or(String::new(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
