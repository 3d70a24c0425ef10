//! How a write is worded: what it changes, and under which condition. Names and values always go through placeholders.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;

/// An update, a condition, or both.
#[derive(Clone, Debug, Default)]
pub(crate) struct Expression {
    sets: Vec<String>,
    adds: Vec<String>,
    drops: Vec<String>,
    removes: Vec<String>,
    conditions: Vec<String>,
    names: HashMap<String, String>,
    values: HashMap<String, AttributeValue>,
}

impl Expression {
    /// Nothing yet.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Only if there is no such item.
    pub(crate) fn absent() -> Self {
        Self::new().when("attribute_not_exists(#pk)", [])
    }

    /// Sets an attribute.
    pub(crate) fn set(mut self, name: &str, value: AttributeValue) -> Self {
        self.sets.push(format!("#{name} = :{name}"));
        self.name(name);
        self.value(name, value);
        self
    }

    /// Sets an attribute, or removes it if there is no value.
    pub(crate) fn set_or_clear(self, name: &str, value: Option<AttributeValue>) -> Self {
        match value {
            Some(value) => self.set(name, value),
            None => self.clear([name]),
        }
    }

    /// Sets an attribute that is not there yet.
    pub(crate) fn set_once(mut self, name: &str, value: AttributeValue) -> Self {
        self.sets.push(format!("#{name} = if_not_exists(#{name}, :{name})"));
        self.name(name);
        self.value(name, value);
        self
    }

    /// Counts an attribute up; an absent one counts from 0.
    pub(crate) fn count_up(mut self, name: &str) -> Self {
        self.adds.push(format!("#{name} :one"));
        self.name(name);
        self.value("one", AttributeValue::N("1".to_owned()));
        self
    }

    /// Counts an attribute up by a number.
    pub(crate) fn count(mut self, name: &str, by: u64) -> Self {
        self.adds.push(format!("#{name} :{name}"));
        self.name(name);
        self.value(name, AttributeValue::N(by.to_string()));
        self
    }

    /// Puts a text into a set of texts, if it is not there.
    pub(crate) fn put_into(mut self, name: &str, text: &str) -> Self {
        self.adds.push(format!("#{name} :{name}"));
        self.set_of(name, text);
        self
    }

    /// Takes a text out of a set of texts, if it is there.
    pub(crate) fn take_out(mut self, name: &str, text: &str) -> Self {
        self.drops.push(format!("#{name} :{name}"));
        self.set_of(name, text);
        self
    }

    fn set_of(&mut self, name: &str, text: &str) {
        self.name(name);
        self.value(name, AttributeValue::Ss(vec![text.to_owned()]));
    }

    /// Removes attributes.
    pub(crate) fn clear<const N: usize>(mut self, names: [&str; N]) -> Self {
        for name in names {
            self.removes.push(format!("#{name}"));
            self.name(name);
        }
        self
    }

    /// Only if this holds too. Attributes are written `#name` and values `:name`; each value is given here, or set.
    pub(crate) fn when<const N: usize>(
        mut self,
        condition: &str,
        values: [(&str, AttributeValue); N],
    ) -> Self {
        self.conditions.push(format!("({condition})"));
        for word in condition.split('#').skip(1) {
            let name: String =
                word.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
            self.name(&name);
        }
        for (name, value) in values {
            self.value(name, value);
        }
        self
    }

    /// The text of the update.
    pub(crate) fn update(&self) -> Option<String> {
        let clause = |word: &str, parts: &[String]| {
            (!parts.is_empty()).then(|| format!("{word} {}", parts.join(", ")))
        };
        let clauses = [
            clause("SET", &self.sets),
            clause("ADD", &self.adds),
            clause("DELETE", &self.drops),
            clause("REMOVE", &self.removes),
        ];
        let clauses: Vec<_> = clauses.into_iter().flatten().collect();
        (!clauses.is_empty()).then(|| clauses.join(" "))
    }

    /// The text of the condition.
    pub(crate) fn condition(&self) -> Option<String> {
        (!self.conditions.is_empty()).then(|| self.conditions.join(" AND "))
    }

    /// What the placeholders of attributes stand for. The store refuses an empty map.
    pub(crate) fn names(&self) -> Option<HashMap<String, String>> {
        (!self.names.is_empty()).then(|| self.names.clone())
    }

    /// What the placeholders of values stand for. The store refuses an empty map.
    pub(crate) fn values(&self) -> Option<HashMap<String, AttributeValue>> {
        (!self.values.is_empty()).then(|| self.values.clone())
    }

    fn name(&mut self, name: &str) {
        self.names.insert(format!("#{name}"), name.to_owned());
    }

    fn value(&mut self, name: &str, value: AttributeValue) {
        let before = self.values.insert(format!(":{name}"), value);
        debug_assert!(
            before.is_none_or(|before| self.values.get(&format!(":{name}")) == Some(&before)),
            "two values for :{name}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::{n, s};

    #[test]
    fn an_update_names_everything_by_placeholders() {
        let update = Expression::new()
            .set("status", s("pending"))
            .count_up("cycle")
            .clear(["dead_at", "dead_shard"])
            .when("#status = :dead AND #cycle < :max", [("dead", s("dead_letter")), ("max", n(9))]);
        assert_eq!(
            update.update().unwrap(),
            "SET #status = :status ADD #cycle :one REMOVE #dead_at, #dead_shard"
        );
        assert_eq!(update.condition().unwrap(), "(#status = :dead AND #cycle < :max)");
        assert_eq!(update.names().unwrap().len(), 4);
        assert_eq!(update.values().unwrap().len(), 4);
    }

    #[test]
    fn what_is_set_once_and_what_is_counted_are_worded_so() {
        let update = Expression::new().set_once("since", n(1)).count("bad", 7).count_up("all");
        assert_eq!(
            update.update().unwrap(),
            "SET #since = if_not_exists(#since, :since) ADD #bad :bad, #all :one"
        );
        assert_eq!(update.values().unwrap().len(), 3);
    }

    #[test]
    fn sets_grow_and_shrink_by_one_text() {
        let grown = Expression::new().put_into("ids", "a");
        let shrunk = Expression::new().take_out("ids", "a");
        assert_eq!(grown.update().unwrap(), "ADD #ids :ids");
        assert_eq!(shrunk.update().unwrap(), "DELETE #ids :ids");
        assert_eq!(grown.values().unwrap()[":ids"], AttributeValue::Ss(vec!["a".to_owned()]));
    }

    #[test]
    fn nothing_is_no_text_at_all() {
        let nothing = Expression::new();
        assert!(nothing.update().is_none() && nothing.condition().is_none());
        assert!(nothing.names().is_none() && nothing.values().is_none());
    }

    #[test]
    #[should_panic(expected = "two values for :status")]
    fn one_placeholder_cannot_stand_for_two_values() {
        let _ =
            Expression::new().set("status", s("a")).when("#status = :status", [("status", s("b"))]);
    }
}
