//! Parameters, pseudo parameters, conditions and intrinsic functions, resolved.
//!
//! A value that cannot be resolved becomes [`Data::Unknown`] after its problem is noted, so that one mistake is told once.

use std::{cell::RefCell, collections::BTreeMap};

use super::{
    names::{self, Known, Pseudo},
    node::{At, Data, Entry, Node},
    problem::Problems,
    substitution::{self, Piece},
};

/// Everything a reference can mean.
#[derive(Debug)]
pub(super) struct Resolver<'t> {
    pub(super) problems: &'t Problems,
    pub(super) pseudo: Pseudo,
    pub(super) parameters: BTreeMap<String, Node>,
    pub(super) mappings: Option<&'t Node>,
    pub(super) conditions: BTreeMap<String, &'t Node>,
    pub(super) resources: BTreeMap<String, Known>,
    /// `None` while a condition is being decided.
    pub(super) decided: RefCell<BTreeMap<String, Option<bool>>>,
}

impl Resolver<'_> {
    /// The value of a node; `None` is `AWS::NoValue`.
    pub(super) fn resolve(&self, node: &Node) -> Option<Node> {
        let data = match &node.data {
            Data::List(items) => {
                Data::List(items.iter().filter_map(|item| self.resolve(item)).collect())
            }
            Data::Map(entries) => Data::Map(
                entries
                    .iter()
                    .filter_map(|entry| {
                        let value = self.resolve(&entry.value)?;
                        Some(Entry { at: entry.at, name: entry.name.clone(), value })
                    })
                    .collect(),
            ),
            Data::Call(function, argument) => return self.call(node.at, function, argument),
            plain => plain.clone(),
        };
        Some(Node { at: node.at, data })
    }

    /// A named condition's verdict.
    pub(super) fn condition(&self, at: At, name: &str) -> bool {
        let known = self.decided.borrow().get(name).copied();
        match known {
            Some(Some(verdict)) => return verdict,
            Some(None) => {
                self.problems
                    .push(at, format!("condition {name} depends on itself; break the circle"));
                return false;
            }
            None => {}
        }
        let Some(node) = self.conditions.get(name) else {
            self.problems.push(at, format!("condition {name} is not defined; define it under Conditions, or correct the name"));
            return false;
        };
        self.decided.borrow_mut().insert(name.to_owned(), None);
        let verdict = self.truth(node);
        self.decided.borrow_mut().insert(name.to_owned(), Some(verdict));
        verdict
    }

    /// A condition function's verdict.
    fn truth(&self, node: &Node) -> bool {
        if let Some([Entry { name, value, at }]) = node.entries()
            && name == "Condition"
            && let Some(condition) = value.scalar()
        {
            return self.condition(*at, &condition);
        }
        let Data::Call(function, argument) = &node.data else {
            self.problems
                .push(node.at, "a condition must be one of Equals, Not, And, Or, Condition");
            return false;
        };
        let items = argument.items().unwrap_or_default();
        match (function.as_str(), items) {
            ("Condition", _) if argument.scalar().is_some() => {
                self.condition(node.at, &argument.scalar().unwrap_or_default())
            }
            ("Equals", [left, right]) => {
                let side = |node: &Node| {
                    self.resolve(node).map(|value| value.scalar().ok_or(value.json()))
                };
                side(left) == side(right)
            }
            ("Not", [one]) => !self.truth(one),
            ("And", [_, _, ..]) => items.iter().filter(|item| !self.truth(item)).count() == 0,
            ("Or", [_, _, ..]) => items.iter().filter(|item| self.truth(item)).count() > 0,
            _ => {
                self.problems.push(
                    node.at,
                    format!("{function} with these arguments is not a condition; write Equals [a, b], Not [c], And [c, d, ..] or Or [c, d, ..]"),
                );
                false
            }
        }
    }

    fn call(&self, at: At, function: &str, argument: &Node) -> Option<Node> {
        let value = match function {
            "Ref" => match argument.scalar() {
                Some(name) => return self.reference(at, &name),
                None => self.wrong(at, function, "a name"),
            },
            "GetAtt" => self.attribute(at, argument),
            "Sub" => self.substitute(at, argument),
            "Join" => self.join(at, argument),
            "Select" => self.select(at, argument),
            "Split" => self.split(at, argument),
            "FindInMap" => self.find_in_map(at, argument),
            "If" => match argument.items() {
                Some([name, yes, no]) => {
                    let verdict = name.scalar().is_some_and(|name| self.condition(at, &name));
                    return self.resolve(if verdict { yes } else { no });
                }
                _ => self.wrong(at, function, "[condition, then, else]"),
            },
            other => {
                self.problems.push(at, format!("the function {other} is not known to the local host; use Ref, GetAtt, Sub, Join, Select, Split, FindInMap or If"));
                Node::unknown(at)
            }
        };
        Some(value)
    }

    fn wrong(&self, at: At, function: &str, wanted: &str) -> Node {
        self.problems.push(at, format!("the argument of {function} must be {wanted}"));
        Node::unknown(at)
    }

    /// What `Ref` gives; `None` is `AWS::NoValue`.
    fn reference(&self, at: At, name: &str) -> Option<Node> {
        let text = match name {
            "AWS::NoValue" => return None,
            "AWS::Region" => self.pseudo.region.clone(),
            "AWS::AccountId" => names::ACCOUNT.to_owned(),
            "AWS::Partition" => names::PARTITION.to_owned(),
            "AWS::URLSuffix" => names::URL_SUFFIX.to_owned(),
            "AWS::StackName" => self.pseudo.stack_name.clone(),
            "AWS::StackId" => format!(
                "arn:{}:cloudformation:{}:{}:stack/{}/local",
                names::PARTITION,
                self.pseudo.region,
                names::ACCOUNT,
                self.pseudo.stack_name
            ),
            _ => {
                if let Some(value) = self.parameters.get(name) {
                    return Some(Node { at, data: value.data.clone() });
                }
                if let Some(known) = self.resources.get(name) {
                    known.reference.clone()
                } else if let Some(known) =
                    name.strip_suffix(".Alias").and_then(|id| self.resources.get(id))
                {
                    known.attributes.get("Arn").cloned().unwrap_or_default()
                } else {
                    self.problems.push(
                        at,
                        format!("{name} is neither a parameter nor a resource of this stack (or its condition is false); correct the name, or declare it"),
                    );
                    return Some(Node::unknown(at));
                }
            }
        };
        Some(Node::text(at, text))
    }

    fn attribute(&self, at: At, argument: &Node) -> Node {
        let pair = match (&argument.data, argument.items()) {
            (Data::Text(text), _) => {
                text.split_once('.').map(|(id, name)| (id.to_owned(), name.to_owned()))
            }
            (_, Some([id, name])) => {
                id.scalar().zip(self.resolve(name).and_then(|name| name.scalar()))
            }
            _ => None,
        };
        match pair {
            Some((id, name)) => self.attribute_of(at, &id, &name),
            None => self.wrong(at, "GetAtt", "Resource.Attribute"),
        }
    }

    fn attribute_of(&self, at: At, id: &str, name: &str) -> Node {
        let Some(known) = self.resources.get(id) else {
            self.problems.push(
                at,
                format!("{id} is not a resource of this stack (or its condition is false); correct the name, or declare it"),
            );
            return Node::unknown(at);
        };
        let Some(value) = known.attributes.get(name) else {
            let has: Vec<&str> = known.attributes.keys().copied().collect();
            self.problems.push(
                at,
                format!(
                    "{} {id} has no attribute {name} here; it has {}",
                    known.kind,
                    has.join(", ")
                ),
            );
            return Node::unknown(at);
        };
        Node::text(at, value.as_str())
    }

    fn substitute(&self, at: At, argument: &Node) -> Node {
        let (text, variables) = match (&argument.data, argument.items()) {
            (Data::Text(text), _) => (text.clone(), None),
            (_, Some([Node { data: Data::Text(text), .. }, variables])) => {
                (text.clone(), Some(variables))
            }
            _ => return self.wrong(at, "Sub", "a text, or [text, {name: value}]"),
        };
        let Some(pieces) = substitution::pieces(&text) else {
            return self.wrong(at, "Sub", "a text in which each ${ is closed");
        };
        let mut result = String::new();
        for piece in pieces {
            match piece {
                Piece::Plain(text) => result.push_str(&text),
                Piece::Variable(name) => {
                    let own = variables.and_then(|map| map.get(&name));
                    let value = match (own, name.split_once('.')) {
                        (Some(value), _) => self.resolve(value),
                        (None, Some((id, attribute)))
                            if self.resources.contains_key(id) || !name.contains("::") =>
                        {
                            Some(self.attribute_of(at, id, attribute))
                        }
                        _ => self.reference(at, &name),
                    };
                    match value.map(|value| (value.scalar(), value.data)) {
                        Some((Some(text), _)) => result.push_str(&text),
                        Some((None, Data::Unknown)) => return Node::unknown(at),
                        _ => {
                            return self.wrong(
                                at,
                                "Sub",
                                &format!("made of scalars, and {name} is none"),
                            );
                        }
                    }
                }
            }
        }
        Node::text(at, result)
    }

    /// The resolved items of a list that a function takes.
    fn list(&self, node: &Node) -> Option<Vec<Node>> {
        match self.resolve(node)?.data {
            Data::List(items) => Some(items),
            _ => None,
        }
    }

    fn join(&self, at: At, argument: &Node) -> Node {
        let Some([separator, list]) = argument.items() else {
            return self.wrong(at, "Join", "[separator, list]");
        };
        let parts: Option<Vec<String>> = self
            .list(list)
            .and_then(|items| items.iter().map(Node::scalar).collect::<Option<Vec<_>>>());
        match (separator.scalar(), parts) {
            (Some(separator), Some(parts)) => Node::text(at, parts.join(&separator)),
            _ => self.wrong(at, "Join", "[separator, list of scalars]"),
        }
    }

    fn select(&self, at: At, argument: &Node) -> Node {
        let Some([index, list]) = argument.items() else {
            return self.wrong(at, "Select", "[index, list]");
        };
        let index = self
            .resolve(index)
            .and_then(|index| index.number())
            .and_then(|index| usize::try_from(index).ok());
        let chosen =
            index.zip(self.list(list)).and_then(|(index, items)| items.get(index).cloned());
        chosen.unwrap_or_else(|| self.wrong(at, "Select", "[index within the list, list]"))
    }

    fn split(&self, at: At, argument: &Node) -> Node {
        let Some([separator, text]) = argument.items() else {
            return self.wrong(at, "Split", "[separator, text]");
        };
        match (separator.scalar(), self.resolve(text).and_then(|text| text.scalar())) {
            (Some(separator), Some(text)) if !separator.is_empty() => Node {
                at,
                data: Data::List(text.split(&separator).map(|part| Node::text(at, part)).collect()),
            },
            _ => self.wrong(at, "Split", "[separator, text]"),
        }
    }

    fn find_in_map(&self, at: At, argument: &Node) -> Node {
        let path: Option<Vec<String>> = argument
            .items()
            .unwrap_or_default()
            .iter()
            .map(|part| self.resolve(part).and_then(|part| part.scalar()))
            .collect();
        let Some([map, first, second]) = path.as_deref() else {
            return self.wrong(at, "FindInMap", "[map, key, key]");
        };
        let found = self.mappings.and_then(|maps| maps.get(map)?.get(first)?.get(second));
        found.cloned().unwrap_or_else(|| {
            self.problems.push(
                at,
                format!("Mappings has no {map}.{first}.{second}; add it, or correct the name"),
            );
            Node::unknown(at)
        })
    }
}
