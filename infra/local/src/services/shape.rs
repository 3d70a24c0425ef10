//! What a DynamoDB request touches, and whether two descriptions of a table mean the same. Pure.

use serde_json::{Value, json};

use super::{answer::text, recorder::Observed, tables::Known};
use crate::wiring::Table;

/// Actions whose answers hold ARNs.
pub(super) fn names_arns(action: &str) -> bool {
    matches!(
        action,
        "CreateTable"
            | "DeleteTable"
            | "DescribeTable"
            | "UpdateTable"
            | "ListStreams"
            | "DescribeStream"
            | "GetRecords"
    )
}

/// Actions after which a stream may have something new.
pub(super) fn writes(action: &str) -> bool {
    matches!(
        action,
        "PutItem"
            | "UpdateItem"
            | "DeleteItem"
            | "BatchWriteItem"
            | "TransactWriteItems"
            | "ExecuteStatement"
            | "ExecuteTransaction"
            | "BatchExecuteStatement"
    )
}

/// The part of a table that a template can change only by replacing it: keys, indexes, stream. Comparable.
pub(super) fn of(description: &Value) -> Value {
    let sorted = |value: Option<&Value>, by: &str| {
        let mut items = value.and_then(Value::as_array).cloned().unwrap_or_default();
        items.sort_by_key(|item| text(item, by).unwrap_or_default().to_owned());
        items
    };
    let indexes = |name: &str| -> Vec<Value> {
        let plain = |index: &Value| {
            json!({
                "name": index.get("IndexName"),
                "keys": index.get("KeySchema"),
                "projection": index.get("Projection").and_then(|projection| projection.get("ProjectionType")),
                "attributes": index.get("Projection").and_then(|projection| projection.get("NonKeyAttributes")),
            })
        };
        sorted(description.get(name), "IndexName").iter().map(plain).collect()
    };
    let stream = description.get("StreamSpecification");
    json!({
        "keys": description.get("KeySchema"),
        "attributes": sorted(description.get("AttributeDefinitions"), "AttributeName"),
        "global indexes": indexes("GlobalSecondaryIndexes"),
        "local indexes": indexes("LocalSecondaryIndexes"),
        "stream": stream.and_then(|stream| stream.get("StreamViewType")),
    })
}

pub(super) fn known(table: &Table) -> Known {
    let hash = |schema: &Value| {
        let keys = schema.get("KeySchema").and_then(Value::as_array);
        let hash = keys.into_iter().flatten().find(|key| text(key, "KeyType") == Some("HASH"));
        hash.and_then(|key| text(key, "AttributeName")).unwrap_or_default().to_owned()
    };
    let index_keys = ["GlobalSecondaryIndexes", "LocalSecondaryIndexes"]
        .iter()
        .filter_map(|name| table.create.get(*name).and_then(Value::as_array))
        .flatten()
        .map(|index| (text(index, "IndexName").unwrap_or_default().to_owned(), hash(index)))
        .collect();
    Known {
        name: table.name.clone(),
        arn: table.arn.clone(),
        hash_key: hash(&table.create),
        index_keys,
    }
}

/// The IAM actions that a request needs, with the resource and the partition keys of each.
pub(super) fn observed(
    tables: &[Known],
    region: &str,
    function: &str,
    action: &str,
    request: &Value,
) -> Vec<Observed> {
    let calls = match action {
        "TransactWriteItems" | "TransactGetItems" => {
            let items = request.get("TransactItems").and_then(Value::as_array);
            items
                .into_iter()
                .flatten()
                .filter_map(Value::as_object)
                .flatten()
                .filter_map(|(kind, item)| {
                    let action = match kind.as_str() {
                        "Put" => "PutItem",
                        "Update" => "UpdateItem",
                        "Delete" => "DeleteItem",
                        "ConditionCheck" => "ConditionCheckItem",
                        "Get" => "GetItem",
                        _ => return None,
                    };
                    Some((action, touched(tables, region, item)))
                })
                .collect()
        }
        "BatchGetItem" | "BatchWriteItem" => {
            let by_table = request.get("RequestItems").and_then(Value::as_object);
            by_table
                .into_iter()
                .flatten()
                .map(|(name, items)| {
                    let table =
                        tables.iter().find(|table| table.name == *name || table.arn == *name);
                    let keys = items.get("Keys").unwrap_or(items).as_array();
                    let leading = keys
                        .into_iter()
                        .flatten()
                        .filter_map(|item| {
                            let item = item
                                .get("PutRequest")
                                .and_then(|put| put.get("Item"))
                                .or_else(|| {
                                    item.get("DeleteRequest").and_then(|delete| delete.get("Key"))
                                })
                                .unwrap_or(item);
                            key_of(item.get(&table?.hash_key)?)
                        })
                        .collect();
                    (action, (arn_of(table, region, name), leading))
                })
                .collect()
        }
        "ListTables" | "ListStreams" => vec![(action, ("*".to_owned(), Vec::new()))],
        _ => vec![(action, touched(tables, region, request))],
    };
    let calls: Vec<(&str, (String, Vec<String>))> = calls;
    calls
        .into_iter()
        .map(|(action, (resource, mut leading_keys))| {
            leading_keys.dedup();
            Observed {
                function: function.to_owned(),
                action: format!("dynamodb:{action}"),
                resource,
                leading_keys,
            }
        })
        .collect()
}

fn arn_of(table: Option<&Known>, region: &str, name: &str) -> String {
    table.map_or_else(
        || format!("arn:aws:dynamodb:{region}:000000000000:table/{name}"),
        |table| table.arn.clone(),
    )
}

/// The resource and the partition key of a request for one table or index.
fn touched(tables: &[Known], region: &str, request: &Value) -> (String, Vec<String>) {
    if let Some(stream) = text(request, "StreamArn") {
        return (stream.to_owned(), Vec::new());
    }
    let name = text(request, "TableName").unwrap_or("*");
    let table = tables.iter().find(|table| table.name == name || table.arn == name);
    let arn = arn_of(table, region, name);
    let Some(table) = table else { return (arn, Vec::new()) };
    let index = text(request, "IndexName");
    let hash_key = index
        .and_then(|index| table.index_keys.iter().find(|(name, _)| name == index))
        .map_or(&table.hash_key, |(_, key)| key);
    let resource = index.map_or_else(|| arn.clone(), |index| format!("{arn}/index/{index}"));
    let item = request.get("Key").or_else(|| request.get("Item"));
    let leading = match item {
        Some(item) => item.get(hash_key).and_then(key_of),
        None => queried(request, hash_key),
    };
    (resource, leading.into_iter().collect())
}

/// A key attribute's value as text.
fn key_of(value: &Value) -> Option<String> {
    value.as_object()?.values().next()?.as_str().map(str::to_owned)
}

/// The partition key of a query: the value that its key condition sets equal to the key.
fn queried(request: &Value, hash_key: &str) -> Option<String> {
    let condition = text(request, "KeyConditionExpression")?.replace(['(', ')'], " ");
    let names = request.get("ExpressionAttributeNames");
    let values = request.get("ExpressionAttributeValues")?;
    for part in condition.split(" AND ").flat_map(|part| part.split(" and ")) {
        let Some((left, right)) = part.split_once('=') else { continue };
        let left = left.trim();
        let name = names.and_then(|names| text(names, left)).unwrap_or(left);
        if name == hash_key {
            return key_of(values.get(right.trim())?);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables() -> Vec<Known> {
        vec![Known {
            name: "t".to_owned(),
            arn: "arn:t".to_owned(),
            hash_key: "pk".to_owned(),
            index_keys: vec![("by_due".to_owned(), "shard".to_owned())],
        }]
    }

    #[test]
    fn a_request_names_what_iam_would_ask_about() {
        let check = |action: &str, request: Value, expected: &[(&str, &str, &[&str])]| {
            let seen: Vec<_> = observed(&tables(), "r", "f", action, &request)
                .into_iter()
                .map(|call| (call.action, call.resource, call.leading_keys))
                .collect();
            let expected: Vec<_> = expected
                .iter()
                .map(|(action, resource, keys)| {
                    (
                        (*action).to_owned(),
                        (*resource).to_owned(),
                        keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>(),
                    )
                })
                .collect();
            assert_eq!(seen, expected, "{request}");
        };
        check(
            "PutItem",
            json!({"TableName":"t","Item":{"pk":{"S":"A#1"}}}),
            &[("dynamodb:PutItem", "arn:t", &["A#1"])],
        );
        check(
            "GetItem",
            json!({"TableName":"arn:t","Key":{"pk":{"S":"A"}}}),
            &[("dynamodb:GetItem", "arn:t", &["A"])],
        );
        check(
            "Query",
            json!({"TableName":"t","IndexName":"by_due","KeyConditionExpression":"#s = :s AND due_at <= :n",
                "ExpressionAttributeNames":{"#s":"shard"},"ExpressionAttributeValues":{":s":{"S":"3"},":n":{"N":"5"}}}),
            &[("dynamodb:Query", "arn:t/index/by_due", &["3"])],
        );
        check(
            "TransactWriteItems",
            json!({"TransactItems":[
                {"Put":{"TableName":"t","Item":{"pk":{"S":"A"}}}},
                {"ConditionCheck":{"TableName":"t","Key":{"pk":{"S":"B"}}}}]}),
            &[
                ("dynamodb:PutItem", "arn:t", &["A"]),
                ("dynamodb:ConditionCheckItem", "arn:t", &["B"]),
            ],
        );
        check(
            "BatchWriteItem",
            json!({"RequestItems":{"t":[{"PutRequest":{"Item":{"pk":{"S":"A"}}}},{"DeleteRequest":{"Key":{"pk":{"S":"B"}}}}]}}),
            &[("dynamodb:BatchWriteItem", "arn:t", &["A", "B"])],
        );
        check(
            "Scan",
            json!({"TableName":"x"}),
            &[("dynamodb:Scan", "arn:aws:dynamodb:r:000000000000:table/x", &[])],
        );
        check("ListTables", json!({}), &[("dynamodb:ListTables", "*", &[])]);
        check("TransactWriteItems", json!({"TransactItems":7}), &[]);
    }
}
