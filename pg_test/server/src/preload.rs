//! Libraries between a server and the operating system.

use crate::sandbox;
use std::path::PathBuf;
use std::process::Command;

/// A library that the server loads before all others, and a file that tells the library what to do.
#[derive(Clone, Debug)]
pub struct Preload {
    library: PathBuf,
    variable: &'static str,
    file: PathBuf,
}

impl Preload {
    /// Compiles `source`. It finds the name of `file` in the environment `variable`.
    pub fn compile(source: &str, variable: &'static str, file: PathBuf) -> Self {
        Self { library: sandbox::compile(source), variable, file }
    }

    /// The same library with another file.
    pub fn with_file(&self, file: PathBuf) -> Self {
        Self { file, ..self.clone() }
    }

    pub(crate) fn apply_to(&self, command: &mut Command) {
        sandbox::preload(command, &self.library);
        command.env(self.variable, &self.file);
    }
}
