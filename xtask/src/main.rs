//! What the scripts leave to a program: `cargo xtask COMMAND`. Each command is called by one of them, which has set up
//! the machine before.

mod callgrind;
mod command;
mod fleet;
mod instructions;
mod mutants;
mod package;
mod server;
mod suites;

use anyhow::{Result, bail};
use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  regress                            pg_test/regress
  upstream SOURCES                   the suites in PostgreSQL's source
  can-upgrade                        whether pg_upgrade can, from PG_CONFIG_OLD's
  instructions [--accept]            counts the instructions of a call
  mutants [NAME...]                  breaks the core on purpose
  package SHA256SUMS                 tests the packages that are listed there
  fleet                              servers with a registry, and what becomes of them
  server [NAME=VALUE...] -- COMMAND  runs a command beside a private server";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match do_command(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn do_command(args: &[String]) -> Result<()> {
    let Some((command, args)) = args.split_first() else { bail!(USAGE) };
    match (command.as_str(), args) {
        ("regress", []) => suites::regress(),
        ("upstream", [sources]) => suites::upstream(Path::new(sources)),
        ("can-upgrade", []) => suites::can_upgrade(),
        ("instructions", []) => instructions::main(false),
        ("instructions", [accept]) if accept == "--accept" => instructions::main(true),
        ("mutants", names) => mutants::main(names),
        // By `package` itself.
        ("package-serves", [way, name, root, library, file]) => {
            package::serves(way, name, Path::new(root), Path::new(library), Path::new(file))
        }
        ("package", [sums]) => package::main(Path::new(sums)),
        ("fleet", []) => fleet::show(),
        ("server", args) => {
            let (settings, command) = match args.iter().position(|arg| arg == "--") {
                Some(n) => (&args[..n], &args[n + 1..]),
                None => bail!(USAGE),
            };
            server::run_beside(settings, command)
        }
        _ => bail!(USAGE),
    }
}
