//! Man pages and shell completions, generated from the definition of a command line, so that they name every command
//! and flag that the program has.

use std::io;
use std::path::{Path, PathBuf};

use clap::Command;
use clap_complete::Shell;

/// Commands that generate the documentation of a program's command line. They read no configuration.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum DocsCommand {
    /// Print the script that completes commands and flags in a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the man pages of all commands into a directory
    Man {
        /// The directory; it is created when it is missing
        directory: PathBuf,
    },
}

impl DocsCommand {
    /// Generates the documentation of `program`.
    ///
    /// # Errors
    /// Standard output or the directory cannot be written.
    pub fn run(self, program: Command) -> io::Result<()> {
        match self {
            Self::Completions { shell } => write_completions(program, shell, &mut io::stdout().lock()),
            Self::Man { directory } => write_man_pages(program, &directory),
        }
    }
}

/// Writes one page per command: `keygate.1`, `keygate-key.1`, `keygate-key-create.1`.
fn write_man_pages(program: Command, directory: &Path) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    clap_mangen::generate_to(program, directory)
}

/// Writes the script in one call: the generator panics when a write fails, and a pipe may be closed.
fn write_completions(mut program: Command, shell: Shell, out: &mut dyn io::Write) -> io::Result<()> {
    let name = program.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut program, name, &mut script);
    out.write_all(&script)
}
