//! Configuration from the environment, read once at cold start.
//!
//! A function that cannot be configured must not start: everything that is wrong is reported at once, each problem with
//! the variable, what is wrong with it, and what it should look like. Values are never printed: one of them may be a
//! secret in the wrong place.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Display},
    ops::RangeInclusive,
    str::FromStr,
    time::Duration,
};

use http::Uri;

/// Reads variables, and remembers everything that is wrong with them.
#[derive(Debug)]
pub struct Env {
    variables: Variables,
    read: BTreeSet<String>,
    problems: Vec<String>,
}

enum Variables {
    Process,
    Given(BTreeMap<String, String>),
}

impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Process => "Process",
            Self::Given(_) => "Given(..)",
        })
    }
}

/// Everything that is wrong with the environment, one line for each problem.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("the function cannot start, its environment is wrong:\n{}", .0.join("\n"))]
pub struct BadEnv(Vec<String>);

// A `main` that ends with an error prints it with `Debug`, and an operator reads it.
impl fmt::Debug for BadEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Display::fmt(self, f)
    }
}

impl BadEnv {
    /// The problems, in the order of reading.
    pub fn problems(&self) -> &[String] {
        &self.0
    }
}

/// What every function reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    /// The name of the deployment, such as `dev`; a dimension of every metric.
    pub env_name: String,
    /// The least severe log line that is written.
    pub log_level: tracing::Level,
}

impl Base {
    /// Reads `ENV_NAME` and `LOG_LEVEL`.
    pub fn read(env: &mut Env) -> Option<Self> {
        let env_name = env.text("ENV_NAME");
        let log_level = env.parsed("LOG_LEVEL", "one of ERROR, WARN, INFO, DEBUG, TRACE");
        Some(Self { env_name: env_name?, log_level: log_level? })
    }
}

/// The names of the variables that `read` asks for, for comparing them with the template.
pub fn names_read<C>(read: impl FnOnce(&mut Env) -> Option<C>) -> BTreeSet<String> {
    let mut env = Env::over::<&str>([]);
    read(&mut env);
    env.read
}

impl Env {
    /// The environment of this process.
    pub fn process() -> Self {
        Self::from_variables(Variables::Process)
    }

    /// Variables that are given, instead of the process's own.
    pub fn over<T: Into<String>>(variables: impl IntoIterator<Item = (T, T)>) -> Self {
        let given = variables.into_iter().map(|(name, value)| (name.into(), value.into()));
        Self::from_variables(Variables::Given(given.collect()))
    }

    fn from_variables(variables: Variables) -> Self {
        Self { variables, read: BTreeSet::new(), problems: Vec::new() }
    }

    /// What `read` makes of the environment, or everything that was wrong with it.
    ///
    /// # Errors
    /// All problems that were noted.
    pub fn parse<C>(mut self, read: impl FnOnce(&mut Self) -> Option<C>) -> Result<C, BadEnv> {
        match read(&mut self) {
            Some(config) if self.problems.is_empty() => Ok(config),
            _ => Err(BadEnv(self.problems)),
        }
    }

    /// A text that is not blank.
    pub fn text(&mut self, name: &str) -> Option<String> {
        match self.value(name) {
            Some(value) if !value.trim().is_empty() => Some(value),
            Some(_) => self.problem(name, "is blank; it should be a text"),
            None => self.problem(name, "is not set; it should be a text"),
        }
    }

    /// A text that need not be there. Blank counts as absent.
    pub fn optional_text(&mut self, name: &str) -> Option<String> {
        self.value(name).filter(|value| !value.trim().is_empty())
    }

    /// A value that reads itself. `form` says what it should look like.
    pub fn parsed<T: FromStr>(&mut self, name: &str, form: &str) -> Option<T> {
        match self.value(name).map(|value| value.trim().parse()) {
            Some(Ok(value)) => Some(value),
            Some(Err(_)) => self.problem(name, &format!("cannot be read; it should be {form}")),
            None => self.problem(name, &format!("is not set; it should be {form}")),
        }
    }

    /// A whole number within bounds, both inclusive.
    pub fn number<T>(&mut self, name: &str, bounds: RangeInclusive<T>) -> Option<T>
    where
        T: FromStr + PartialOrd + Display,
    {
        self.bounded(name, &bounds, "a whole number")
    }

    /// A wait in whole milliseconds, within bounds in milliseconds, both inclusive.
    pub fn millis(&mut self, name: &str, bounds: RangeInclusive<u64>) -> Option<Duration> {
        self.bounded(name, &bounds, "a whole number of milliseconds").map(Duration::from_millis)
    }

    /// A size in bytes, within bounds, both inclusive.
    pub fn bytes(&mut self, name: &str, bounds: RangeInclusive<usize>) -> Option<usize> {
        self.bounded(name, &bounds, "a whole number of bytes")
    }

    /// `true` or `false`.
    pub fn flag(&mut self, name: &str) -> Option<bool> {
        self.parsed(name, "`true` or `false`")
    }

    /// `true` or `false`; absent is `false`.
    pub fn optional_flag(&mut self, name: &str) -> Option<bool> {
        match self.optional_text(name) {
            None => Some(false),
            Some(_) => self.flag(name),
        }
    }

    /// Texts between commas. An empty variable is an empty list.
    pub fn list(&mut self, name: &str) -> Option<Vec<String>> {
        let Some(value) = self.value(name) else {
            return self.problem(name, "is not set; it should be a list with commas, or empty");
        };
        let items = value.split(',').map(str::trim).filter(|item| !item.is_empty());
        Some(items.map(str::to_owned).collect())
    }

    /// An absolute `http` or `https` address without a query. A slash at its end is dropped.
    pub fn url(&mut self, name: &str) -> Option<String> {
        let value = self.text(name)?;
        if is_address(&value) {
            Some(value.trim().trim_end_matches('/').to_owned())
        } else {
            self.problem(name, "cannot be read; it should be an address such as https://host/path")
        }
    }

    /// Notes that a variable is wrong in a way that only its reader knows.
    pub fn problem<T>(&mut self, name: &str, what: &str) -> Option<T> {
        self.problems.push(format!("{name} {what}"));
        None
    }

    fn bounded<T>(&mut self, name: &str, bounds: &RangeInclusive<T>, what: &str) -> Option<T>
    where
        T: FromStr + PartialOrd + Display,
    {
        let form = format!("{what} from {} to {}", bounds.start(), bounds.end());
        let value = self.parsed(name, &form)?;
        if bounds.contains(&value) {
            Some(value)
        } else {
            self.problem(name, &format!("is out of bounds; it should be {form}"))
        }
    }

    fn value(&mut self, name: &str) -> Option<String> {
        self.read.insert(name.to_owned());
        match &self.variables {
            #[expect(
                clippy::disallowed_methods,
                reason = "the one place that reads the environment"
            )]
            Variables::Process => std::env::var(name).ok(),
            Variables::Given(given) => given.get(name).cloned(),
        }
    }
}

fn is_address(text: &str) -> bool {
    let Ok(uri) = text.trim().parse::<Uri>() else { return false };
    matches!(uri.scheme_str(), Some("http" | "https"))
        && uri.host().is_some_and(|host| !host.is_empty())
        && uri.query().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq)]
    struct Sample {
        table: String,
        wait: Duration,
        shards: u16,
        list: bool,
        hosts: Vec<String>,
        url: String,
        loopback: bool,
    }

    fn read(env: &mut Env) -> Option<Sample> {
        let table = env.text("TABLE");
        let wait = env.millis("WAIT_MS", 1..=1000);
        let shards = env.number("SHARDS", 1..=64);
        let list = env.flag("LIST");
        let hosts = env.list("HOSTS");
        let url = env.url("URL");
        let loopback = env.optional_flag("LOCAL_LOOPBACK");
        Some(Sample {
            table: table?,
            wait: wait?,
            shards: shards?,
            list: list?,
            hosts: hosts?,
            url: url?,
            loopback: loopback?,
        })
    }

    const GOOD: [(&str, &str); 6] = [
        ("TABLE", "inbox"),
        ("WAIT_MS", "250"),
        ("SHARDS", "8"),
        ("LIST", "true"),
        ("HOSTS", "a, b,"),
        ("URL", "https://h/x/"),
    ];

    fn with(name: &'static str, value: Option<&'static str>) -> Result<Sample, Vec<String>> {
        let others = GOOD.into_iter().filter(|(other, _)| *other != name);
        let variables = others.chain(value.map(|value| (name, value)));
        Env::over(variables).parse(read).map_err(|bad| bad.problems().to_vec())
    }

    #[test]
    fn a_good_environment_is_read() {
        assert_eq!(
            with("-", None),
            Ok(Sample {
                table: "inbox".to_owned(),
                wait: Duration::from_millis(250),
                shards: 8,
                list: true,
                hosts: vec!["a".to_owned(), "b".to_owned()],
                url: "https://h/x".to_owned(),
                loopback: false,
            })
        );
        assert!(with("LOCAL_LOOPBACK", Some("true")).unwrap().loopback);
    }

    /// DEP-missing-config
    #[test]
    fn each_problem_names_the_variable_what_is_wrong_and_what_it_should_be() {
        let check = |name, value, expected: &str| {
            assert_eq!(with(name, value), Err(vec![expected.to_owned()]));
        };
        check("TABLE", None, "TABLE is not set; it should be a text");
        check("TABLE", Some(" "), "TABLE is blank; it should be a text");
        let wait = "a whole number of milliseconds from 1 to 1000";
        check("WAIT_MS", None, &format!("WAIT_MS is not set; it should be {wait}"));
        check("WAIT_MS", Some("1s"), &format!("WAIT_MS cannot be read; it should be {wait}"));
        check("WAIT_MS", Some("-1"), &format!("WAIT_MS cannot be read; it should be {wait}"));
        check("WAIT_MS", Some("0"), &format!("WAIT_MS is out of bounds; it should be {wait}"));
        check("WAIT_MS", Some("1001"), &format!("WAIT_MS is out of bounds; it should be {wait}"));
        let shards = "SHARDS cannot be read; it should be a whole number from 1 to 64";
        check("SHARDS", Some("99999999"), shards);
        check("LIST", Some("yes"), "LIST cannot be read; it should be `true` or `false`");
        check(
            "LOCAL_LOOPBACK",
            Some("1"),
            "LOCAL_LOOPBACK cannot be read; it should be `true` or `false`",
        );
        let url = "URL cannot be read; it should be an address such as https://host/path";
        for bad in ["h/x", "ftp://h/x", "https:///x", "https://h/x?y=z"] {
            check("URL", Some(bad), url);
        }
    }

    /// DEP-missing-config
    #[test]
    fn all_problems_are_reported_at_once_and_no_value_is_shown() {
        let bad = Env::over([("WAIT_MS", "s3cret"), ("SHARDS", "s3cret"), ("TABLE", "")])
            .parse(read)
            .unwrap_err();
        assert_eq!(bad.problems().len(), 6, "{bad}");
        assert!(!format!("{bad} {bad:?}").contains("s3cret"), "{bad}");
    }

    #[test]
    fn the_names_that_are_read_do_not_depend_on_what_is_set() {
        let names: Vec<String> = names_read(read).into_iter().collect();
        assert_eq!(names, ["HOSTS", "LIST", "LOCAL_LOOPBACK", "SHARDS", "TABLE", "URL", "WAIT_MS"]);
    }

    #[test]
    fn the_base_reads_level_names_in_any_case() {
        let base =
            Env::over([("ENV_NAME", "dev"), ("LOG_LEVEL", "warn")]).parse(Base::read).unwrap();
        assert_eq!(base, Base { env_name: "dev".to_owned(), log_level: tracing::Level::WARN });
        assert!(Env::over([("ENV_NAME", "dev"), ("LOG_LEVEL", "loud")]).parse(Base::read).is_err());
    }
}
