//! The AWS services of a host, asked as an operator with a console would.

use anyhow::{Context as _, Result, ensure};
use http::{HeaderMap, HeaderValue, Method};
use serde_json::{Value, json};

use crate::{client::Client, eventually};

/// Who the host's recorder takes us for.
const CREDENTIAL: &str = "AWS4-HMAC-SHA256 Credential=SUITE/20261130/us-east-1/any/aws4_request, SignedHeaders=host, Signature=00";

/// The AWS services.
#[derive(Clone, Debug)]
pub struct Aws(Client);

impl Aws {
    pub(crate) fn of(client: Client) -> Self {
        Self(client)
    }

    /// An action of DynamoDB.
    ///
    /// # Errors
    /// It is refused.
    pub async fn dynamodb(&self, action: &str, body: &Value) -> Result<Value> {
        self.call(&format!("DynamoDB_20120810.{action}"), body).await
    }

    /// An action of SQS.
    ///
    /// # Errors
    /// It is refused.
    pub async fn sqs(&self, action: &str, body: &Value) -> Result<Value> {
        self.call(&format!("AmazonSQS.{action}"), body).await
    }

    /// An action of EventBridge.
    ///
    /// # Errors
    /// It is refused.
    pub async fn eventbridge(&self, action: &str, body: &Value) -> Result<Value> {
        self.call(&format!("AWSEvents.{action}"), body).await
    }

    async fn call(&self, target: &str, body: &Value) -> Result<Value> {
        let mut headers = HeaderMap::new();
        headers.insert("x-amz-target", HeaderValue::try_from(target)?);
        headers.insert("content-type", HeaderValue::from_static("application/x-amz-json-1.0"));
        headers.insert("authorization", HeaderValue::from_static(CREDENTIAL));
        headers.insert("x-amz-date", HeaderValue::from_static("20261130T000000Z"));
        let answer = self.0.call(Method::POST, "/", headers, body.to_string().into()).await?;
        answer.good().with_context(|| format!("{target} of {body}"))
    }

    /// The name of the table with this logical id.
    ///
    /// # Errors
    /// There is none.
    pub async fn table(&self, logical_id: &str) -> Result<String> {
        let all = self.dynamodb("ListTables", &json!({})).await?;
        let names = all.get("TableNames").and_then(Value::as_array).into_iter().flatten();
        let name = names.filter_map(Value::as_str).find(|name| name.contains(logical_id));
        name.map(str::to_owned).with_context(|| format!("no table {logical_id} in {all}"))
    }

    /// The URL of the queue with this logical id.
    ///
    /// # Errors
    /// There is none.
    pub async fn queue(&self, logical_id: &str) -> Result<String> {
        let all = self.sqs("ListQueues", &json!({})).await?;
        let urls = all.get("QueueUrls").and_then(Value::as_array).into_iter().flatten();
        let url = urls.filter_map(Value::as_str).find(|url| {
            url.rsplit('/').next().is_some_and(|name| {
                name == logical_id || name.split('-').any(|part| part == logical_id)
            })
        });
        url.map(str::to_owned).with_context(|| format!("no queue {logical_id} in {all}"))
    }

    /// Every item of a table.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn items(&self, logical_id: &str) -> Result<Vec<Item>> {
        let table = self.table(logical_id).await?;
        let (mut items, mut from) = (Vec::new(), Value::Null);
        loop {
            let mut scan = json!({ "TableName": table, "ConsistentRead": true });
            if let (Some(scan), false) = (scan.as_object_mut(), from.is_null()) {
                scan.insert("ExclusiveStartKey".to_owned(), from);
            }
            let page = self.dynamodb("Scan", &scan).await?;
            let found = page.get("Items").and_then(Value::as_array).into_iter().flatten();
            items.extend(found.cloned().map(Item));
            from = page.get("LastEvaluatedKey").cloned().unwrap_or_default();
            if from.is_null() {
                return Ok(items);
            }
        }
    }

    /// How many messages a queue has: visible, hidden and delayed.
    ///
    /// # Errors
    /// There is no such queue.
    pub async fn depth(&self, logical_id: &str) -> Result<u64> {
        let url = self.queue(logical_id).await?;
        let body = json!({ "QueueUrl": url, "AttributeNames": ["All"] });
        let answer = self.sqs("GetQueueAttributes", &body).await?;
        let attributes = answer.get("Attributes").and_then(Value::as_object);
        let attributes = attributes.context("a queue has attributes")?;
        let mut depth = 0;
        for (name, value) in attributes {
            if name.starts_with("ApproximateNumberOfMessages") {
                depth += value.as_str().unwrap_or_default().parse::<u64>()?;
            }
        }
        Ok(depth)
    }

    /// Forgets every message of a queue.
    ///
    /// # Errors
    /// There is no such queue.
    pub async fn purge(&self, logical_id: &str) -> Result<()> {
        let url = self.queue(logical_id).await?;
        self.sqs("PurgeQueue", &json!({ "QueueUrl": url })).await.map(drop)
    }

    /// The ARN of the queue with this logical id.
    ///
    /// # Errors
    /// There is none.
    pub async fn queue_arn(&self, logical_id: &str) -> Result<String> {
        let url = self.queue(logical_id).await?;
        let body = json!({ "QueueUrl": url, "AttributeNames": ["QueueArn"] });
        let answer = self.sqs("GetQueueAttributes", &body).await?;
        let arn = answer.pointer("/Attributes/QueueArn").and_then(Value::as_str);
        arn.map(str::to_owned).with_context(|| format!("{answer} has no ARN"))
    }

    /// Begins to move all messages of a dead-letter queue back to where they came from: the console's redrive.
    ///
    /// # Errors
    /// There is no such queue, or it is being redriven.
    pub async fn start_redrive(&self, dead_letters: &str) -> Result<()> {
        let arn = self.queue_arn(dead_letters).await?;
        self.sqs("StartMessageMoveTask", &json!({ "SourceArn": arn })).await.map(drop)
    }

    /// [`start_redrive`](Self::start_redrive), and waits until it is over. Gives how many messages were moved.
    ///
    /// # Errors
    /// It fails, or does not end.
    pub async fn redrive(&self, dead_letters: &str) -> Result<u64> {
        self.start_redrive(dead_letters).await?;
        self.until_redriven(dead_letters).await
    }

    /// Waits until the last redrive of a dead-letter queue is over. Gives how many messages were moved.
    ///
    /// # Errors
    /// It fails, or does not end.
    pub async fn until_redriven(&self, dead_letters: &str) -> Result<u64> {
        let arn = self.queue_arn(dead_letters).await?;
        eventually(&format!("{dead_letters} is redriven"), async || {
            let listed = self.sqs("ListMessageMoveTasks", &json!({ "SourceArn": arn })).await?;
            let last = listed.pointer("/Results/0").context("it has begun")?;
            let status = last.get("Status").and_then(Value::as_str);
            ensure!(status == Some("COMPLETED"), "{last}");
            let moved = last.get("ApproximateNumberOfMessagesMoved").and_then(Value::as_u64);
            moved.with_context(|| format!("{last} says how many"))
        })
        .await
    }
}

/// An item of a table.
#[derive(Clone, Debug)]
pub struct Item(Value);

impl Item {
    /// A string attribute.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.get("S")?.as_str()
    }

    /// A number attribute, as its digits.
    pub fn digits(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.get("N")?.as_str()
    }

    /// Whether its partition key begins so.
    pub fn is_of(&self, start: &str) -> bool {
        self.text("pk").is_some_and(|pk| pk.starts_with(start))
    }

    /// All of it, in DynamoDB's JSON.
    pub fn raw(&self) -> &Value {
        &self.0
    }
}
