//! keygate: parse the command line, run the command, and end with its exit code.

use std::process::ExitCode;

use keygate::cli::Cli;

fn main() -> ExitCode {
    match Cli::from_process_args().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
