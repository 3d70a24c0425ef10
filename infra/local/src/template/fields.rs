//! A resource's properties, each of which must be asked for, be on the reviewed list of AWS-only ones, or be refused.

use std::cell::RefCell;

use super::{
    aws_only,
    node::{At, Data, Node},
    problem::Problems,
};

/// A mapping that knows which of its entries were honoured.
#[derive(Debug)]
pub(super) struct Fields<'n> {
    kind: &'n str,
    /// Path within the resource, such as `RedrivePolicy`; empty at the top.
    path: String,
    pub(super) at: At,
    node: Option<&'n Node>,
    asked: RefCell<Vec<&'static str>>,
    problems: &'n Problems,
}

impl<'n> Fields<'n> {
    pub(super) fn of(
        kind: &'n str,
        at: At,
        node: Option<&'n Node>,
        problems: &'n Problems,
    ) -> Self {
        Self::below(kind, String::new(), at, node, problems)
    }

    fn below(
        kind: &'n str,
        path: String,
        at: At,
        node: Option<&'n Node>,
        problems: &'n Problems,
    ) -> Self {
        if let Some(node) = node
            && node.entries().is_none()
            && node.data != Data::Unknown
        {
            problems.push(node.at, format!("{kind} {path} must be a mapping"));
        }
        Self { kind, path, at, node, asked: RefCell::default(), problems }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.node.is_some_and(|node| node.get(name).is_some())
    }

    /// The property, which from now on counts as honoured.
    pub(super) fn take(&self, name: &'static str) -> Option<&'n Node> {
        self.asked.borrow_mut().push(name);
        self.node.and_then(|node| node.get(name)).filter(|node| node.data != Data::Unknown)
    }

    pub(super) fn inside(&self, name: &'static str) -> Option<Fields<'n>> {
        let node = self.take(name)?;
        Some(Self::below(self.kind, self.path_of(name), node.at, Some(node), self.problems))
    }

    /// The entries of a property that is a list of mappings.
    pub(super) fn each(&self, name: &'static str) -> Vec<Fields<'n>> {
        let Some(node) = self.take(name) else { return Vec::new() };
        let Some(items) = node.items() else {
            self.problems
                .push(node.at, format!("{} {} must be a list", self.kind, self.path_of(name)));
            return Vec::new();
        };
        items
            .iter()
            .map(|item| {
                Self::below(
                    self.kind,
                    format!("{}[]", self.path_of(name)),
                    item.at,
                    Some(item),
                    self.problems,
                )
            })
            .collect()
    }

    /// A view of `node` under another path, for events, whose path names their type.
    pub(super) fn view(&self, path: String, node: &'n Node) -> Fields<'n> {
        Self::below(self.kind, path, node.at, Some(node), self.problems)
    }

    pub(super) fn text(&self, name: &'static str) -> Option<String> {
        self.typed(name, "a text", Node::scalar)
    }

    pub(super) fn number(&self, name: &'static str) -> Option<u64> {
        self.typed(name, "a whole number from 0", |node| {
            node.number().and_then(|number| u64::try_from(number).ok())
        })
    }

    pub(super) fn signed(&self, name: &'static str) -> Option<i64> {
        self.typed(name, "a whole number", Node::number)
    }

    pub(super) fn boolean(&self, name: &'static str) -> Option<bool> {
        self.typed(name, "true or false", Node::boolean)
    }

    pub(super) fn texts(&self, name: &'static str) -> Option<Vec<String>> {
        self.typed(name, "a list of texts", |node| node.items()?.iter().map(Node::scalar).collect())
    }

    fn typed<T>(
        &self,
        name: &'static str,
        wanted: &str,
        read: impl Fn(&'n Node) -> Option<T>,
    ) -> Option<T> {
        let node = self.take(name)?;
        let value = read(node);
        if value.is_none() {
            self.problems
                .push(node.at, format!("{} {} must be {wanted}", self.kind, self.path_of(name)));
        }
        value
    }

    /// A property without which nothing can be made.
    pub(super) fn required(&self, name: &'static str) -> Option<String> {
        let missing = !self.has(name);
        let value = self.text(name);
        if missing {
            self.problems
                .push(self.at, format!("{} needs {}; add it", self.kind, self.path_of(name)));
        }
        value
    }

    /// Refuses any value but `only`.
    pub(super) fn only(&self, name: &'static str, only: &str) {
        let Some(node) = self.take(name) else { return };
        if node.scalar().as_deref() != Some(only) {
            self.problems.push(
                node.at,
                format!(
                    "{} {} must be {only}: the local host knows nothing else",
                    self.kind,
                    self.path_of(name)
                ),
            );
        }
    }

    pub(super) fn problem(&self, message: impl Into<String>) {
        self.problems.push(self.at, message);
    }

    /// A problem with the value of a property; its place is the resource's where the property is absent.
    pub(super) fn problem_with(&self, name: &str, message: impl Into<String>) {
        let at = self.node.and_then(|node| node.get(name)).map_or(self.at, |node| node.at);
        self.problems.push(at, message);
    }

    /// Refuses whatever was neither asked for nor is AWS-only.
    pub(super) fn finish(&self) {
        let asked = self.asked.borrow();
        for entry in self.node.and_then(Node::entries).unwrap_or_default() {
            let path = self.path_of(&entry.name);
            if asked.contains(&entry.name.as_str()) || aws_only::property(self.kind, &path) {
                continue;
            }
            let advice = "remove it, teach infra/local/src/template to honour it, or, if it only matters on AWS, add it to the reviewed list in infra/local/src/template/aws_only.rs";
            self.problems.push(
                entry.at,
                format!(
                    "{} property {path} is not honoured by the local host; {advice}",
                    self.kind
                ),
            );
        }
    }

    fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }
}
