//! The command line of `postern-local`.

use std::{path::PathBuf, time::Duration};

use clap::Parser;

/// Runs the functions of a SAM template on this machine, with the AWS services they use.
#[derive(Clone, Debug, Parser)]
#[command(name = "postern-local", version)]
pub struct Options {
    /// The SAM template
    #[arg(long, default_value = "template.yaml")]
    pub template: PathBuf,

    /// The file with the parameters of each environment
    #[arg(long, default_value = "samconfig.toml")]
    pub samconfig: PathBuf,

    /// Which environment of the samconfig
    #[arg(long, default_value = "dev")]
    pub config_env: String,

    /// The folder that keeps tables, queues, secrets, logs and the token
    #[arg(long, default_value = ".postern")]
    pub state: PathBuf,

    /// The folder with the functions' programs
    #[arg(long, default_value = "target/debug")]
    pub bin_dir: PathBuf,

    /// The port of the AWS services; HTTP APIs follow on the next ones. 0: random free ports
    #[arg(long, default_value_t = 8700)]
    pub port: u16,

    /// Keeps tables and queues in memory: faster, and gone at the end
    #[arg(long)]
    pub in_memory: bool,

    /// For tests: every schedule runs each so many milliseconds
    #[arg(long, value_name = "MS", value_parser = milliseconds)]
    pub every: Option<Duration>,

    /// Ends when standard input does: a host does not outlive who started it
    #[arg(long)]
    pub with_parent: bool,
}

fn milliseconds(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("give a whole number of milliseconds above 0".to_owned()),
        Ok(number) => Ok(Duration::from_millis(number)),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent_and_checks_its_numbers() {
        Options::command().debug_assert();
        assert!(Options::try_parse_from(["postern-local", "--every", "0"]).is_err());
        let options =
            Options::try_parse_from(["postern-local", "--every", "50", "--port", "0"]).unwrap();
        assert_eq!((options.every, options.port), (Some(Duration::from_millis(50)), 0));
    }
}
