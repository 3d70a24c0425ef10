//! `postern verify`: would this request be accepted, and if not, why not?
//!
//! A request is a *case*: a JSON object with headers, body, secrets and clock. With `--vectors` the case also says what
//! ought to come out, and only disagreement is shown.

mod case;
mod compare;
mod judge;
mod show;

pub(crate) use judge::preset;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use jiff::Timestamp;
use signing::{Scheme, Secret};

use crate::complaint::Complaint;
use case::Case;
use compare::Comparison;

/// Check the signature of a request, and say in plain words what comes out.
///
/// A file holds one case or a list of them: JSON objects with `provider`, `secrets`, `headers` (a list of name and
/// value), `body_base64` and `now`. Keys that the provider publishes stand in `params.keys`, by id; where a handshake
/// has a secret of its own, it is the second. Without secrets a case is that of a source that waits for its first.
/// Exit code 0: all accepted (or all vectors agree); 1: not; 2: the question could not be answered.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Files with cases; `-` reads standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Compare with what the cases expect, and show only what disagrees
    #[arg(long)]
    vectors: bool,

    /// Use this preset instead of the case's own provider
    #[arg(long, value_name = "NAME", conflicts_with = "scheme_file")]
    scheme: Option<String>,

    /// Use the scheme in this TOML or JSON file
    #[arg(long, value_name = "FILE")]
    scheme_file: Option<PathBuf>,

    /// Use this secret instead of the case's own; may be given more than once
    #[arg(long = "secret", value_name = "SECRET", value_parser = secret)]
    secrets: Vec<Secret>,

    /// Take this as the present, in seconds since 1970
    #[arg(long, value_name = "UNIX", allow_negative_numbers = true)]
    now: Option<i64>,

    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

#[expect(clippy::unnecessary_wraps, reason = "clap wants a parser that can fail")]
fn secret(text: &str) -> Result<Secret, std::convert::Infallible> {
    Ok(Secret::new(text))
}

/// What the command line says in place of the cases.
struct Overrides {
    scheme: Option<Scheme>,
    secrets: Vec<Secret>,
    now: Option<Timestamp>,
    present: Timestamp,
}

/// Runs the subcommand.
///
/// # Errors
/// Only when the answer cannot be written.
pub fn run(
    args: &Args,
    present: Timestamp,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<ExitCode> {
    let overrides = match overrides(args, present) {
        Ok(overrides) => overrides,
        Err(complaint) => {
            writeln!(err, "{complaint}")?;
            return Ok(ExitCode::from(2));
        }
    };
    let mut complaints = Vec::new();
    let mut cases = Vec::new();
    for file in &args.files {
        match case::read(file) {
            Ok(read) => read.into_iter().for_each(|case| match case {
                Ok(case) => cases.push(case),
                Err(complaint) => complaints.push(complaint),
            }),
            Err(complaint) => complaints.push(complaint),
        }
    }
    let good = if args.vectors {
        compare_all(args, &cases, &overrides, &mut complaints, out)?
    } else {
        judge_all(args, &cases, &overrides, &mut complaints, out)?
    };
    for complaint in &complaints {
        writeln!(err, "{complaint}")?;
    }
    Ok(match (complaints.is_empty(), good) {
        (false, _) => ExitCode::from(2),
        (true, false) => ExitCode::from(1),
        (true, true) => ExitCode::SUCCESS,
    })
}

fn overrides(args: &Args, present: Timestamp) -> Result<Overrides, Complaint> {
    let scheme = match (&args.scheme, &args.scheme_file) {
        (Some(name), _) => Some(preset(name)?),
        (None, Some(file)) => Some(case::read_scheme(file)?),
        (None, None) => None,
    };
    let now = args.now.map(case::timestamp).transpose()?;
    Ok(Overrides { scheme, secrets: args.secrets.clone(), now, present })
}

/// Whether all were accepted.
fn judge_all(
    args: &Args,
    cases: &[Case],
    overrides: &Overrides,
    complaints: &mut Vec<Complaint>,
    out: &mut dyn Write,
) -> io::Result<bool> {
    let mut verdicts = Vec::new();
    for case in cases {
        match judge::judge(case, overrides) {
            Ok(verdict) => verdicts.push((case, verdict)),
            Err(complaint) => complaints.push(complaint),
        }
    }
    if args.json {
        show::verdicts_as_json(out, &verdicts, complaints)?;
    } else {
        show::verdicts(out, &verdicts)?;
    }
    Ok(verdicts.iter().all(|(_, verdict)| verdict.is_accepted()))
}

/// Whether all agreed.
fn compare_all(
    args: &Args,
    cases: &[Case],
    overrides: &Overrides,
    complaints: &mut Vec<Complaint>,
    out: &mut dyn Write,
) -> io::Result<bool> {
    let mut comparison = Comparison::default();
    for case in cases {
        if let Err(complaint) = comparison.add(case, overrides) {
            complaints.push(complaint);
        }
    }
    if args.json {
        show::comparison_as_json(out, &comparison, complaints)?;
    } else {
        show::comparison(out, &comparison)?;
    }
    Ok(comparison.mismatches.is_empty())
}
