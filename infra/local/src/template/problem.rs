//! What is wrong with a template, all of it at once, each with its place.

use std::{cell::RefCell, fmt};

use super::node::At;

/// One thing the local host cannot accept.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Problem {
    /// The file's name, as given.
    pub file: String,
    /// Line, from 1; 0 where the whole file is meant.
    pub line: usize,
    /// Column, from 1.
    pub column: usize,
    /// What, why, and what to do.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            return write!(f, "{}: {}", self.file, self.message);
        }
        write!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.message)
    }
}

/// Everything that is wrong with a template and its `samconfig.toml`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TemplateProblems(pub Vec<Problem>);

impl fmt::Display for TemplateProblems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for TemplateProblems {}

/// Problems as they are found. One that is met twice (a global property, seen by each function) is kept once.
#[derive(Debug)]
pub(super) struct Problems {
    file: String,
    found: RefCell<Vec<Problem>>,
}

impl Problems {
    pub(super) fn of(file: &str) -> Self {
        Self { file: file.to_owned(), found: RefCell::default() }
    }

    pub(super) fn push(&self, at: At, message: impl Into<String>) {
        self.push_in(&self.file, at, message);
    }

    pub(super) fn push_in(&self, file: &str, at: At, message: impl Into<String>) {
        let problem = Problem {
            file: file.to_owned(),
            line: at.line,
            column: at.column,
            message: message.into(),
        };
        let mut found = self.found.borrow_mut();
        if !found.contains(&problem) {
            found.push(problem);
        }
    }

    pub(super) fn into_result(self) -> Result<(), TemplateProblems> {
        let mut found = self.found.into_inner();
        found.sort();
        if found.is_empty() { Ok(()) } else { Err(TemplateProblems(found)) }
    }
}
