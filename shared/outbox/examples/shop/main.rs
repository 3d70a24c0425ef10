//! A shop that tells its customers of orders: an order and its event are one transaction.
//!
//! `shop ORDERS OUTBOX ORDER TOTAL AT` places an order in the table ORDERS and puts its event into the outbox OUTBOX. AT
//! is when the customer sent it, in milliseconds. It may be run again with the same words, whatever became of it before.
//!
//! `AWS_ENDPOINT_URL_DYNAMODB`, `AWS_REGION`, `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY` as everywhere.

#![expect(clippy::print_stdout, reason = "a program that is run by hand")]
#![expect(clippy::disallowed_methods, reason = "the edge reads the environment")]

mod place;

use anyhow::{Context as _, Result, bail};
use aws_credential_types::Credentials;
use aws_sdk_dynamodb::{
    Client,
    config::{BehaviorVersion, Config, Region},
};
use jiff::Timestamp;
use place::{Order, Placed, Shop};
use postern_outbox::Outbox;

#[tokio::main]
async fn main() -> Result<()> {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let [orders, outbox, id, total, at] = words.as_slice() else {
        bail!("usage: shop ORDERS OUTBOX ORDER TOTAL AT");
    };
    let order = Order {
        id: id.clone(),
        total: total.parse().context("TOTAL is a number of cents")?,
        at: Timestamp::from_millisecond(at.parse().context("AT is a number")?)?,
    };
    // The shards are the stack's output OutboxShards.
    let shop =
        Shop { client: client()?, orders: orders.clone(), outbox: Outbox::new(outbox.clone(), 4) };
    match shop.place(&order).await? {
        Placed::Now(event) => println!("placed {event}"),
        Placed::Before(event) => println!("placed before {event}"),
    }
    Ok(())
}

fn client() -> Result<Client> {
    let variable = |name: &str| std::env::var(name).with_context(|| format!("{name} is not set"));
    let (key, secret) = (variable("AWS_ACCESS_KEY_ID")?, variable("AWS_SECRET_ACCESS_KEY")?);
    let mut config = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new(variable("AWS_REGION")?))
        .credentials_provider(Credentials::from_keys(key, secret, None))
        .http_client(aws_smithy_http_client::Builder::new().build_http());
    config.set_endpoint_url(std::env::var("AWS_ENDPOINT_URL_DYNAMODB").ok());
    Ok(Client::from_conf(config.build()))
}
