//! The table of parties: one entry for each library, and for each way in which it signs.

use crate::{
    library::Language::{Node, Python},
    party::{Clock, Form, Party, Place},
};

const AMOUNT: (&str, &str) = ("1999", "2999");

/// Spelled in ways that a parser would be tempted to improve.
const BODY: &str = r#"{"id":"evt_1","type":"invoice.paid","created":{s},"data":{"object":{"id":"in_1","object":"invoice","name":"Zo\u00eb ☃ é","n":1.0,"amount":1999}}}"#;

const PLAIN: Party = Party {
    source: "",
    library: "",
    language: Node,
    preset: "",
    address_in: None,
    secret: Form::Text(""),
    query: "",
    headers: &[("content-type", "application/json")],
    body: BODY,
    tampered: AMOUNT,
    id: Some("evt_1"),
    signature: Place::Header(""),
    clock: Clock::Absent,
    signed: &[],
    is_addressed: false,
    takes_old: false,
    is_ours: true,
};

const STANDARD: Party = Party {
    secret: Form::Base64("whsec_"),
    signature: Place::Header("webhook-signature"),
    clock: Clock::Header("webhook-timestamp"),
    signed: &["webhook-id"],
    ..PLAIN
};

const SVIX: Party = Party {
    library: "svix",
    preset: "svix",
    signature: Place::Header("svix-signature"),
    clock: Clock::Header("svix-timestamp"),
    signed: &["svix-id"],
    ..STANDARD
};

const STRIPE: Party = Party {
    library: "stripe",
    preset: "stripe",
    secret: Form::Text("whsec_"),
    signature: Place::Header("stripe-signature"),
    clock: Clock::Pair("t="),
    ..PLAIN
};

const HUBSPOT: Party = Party {
    body: r#"[{"eventId":1,"subscriptionId":12345,"portalId":62515,"occurredAt":{ms},"subscriptionType":"deal.propertyChange","objectId":123,"propertyName":"amount","propertyValue":"1999"}]"#,
    id: None,
    signature: Place::Header("x-hubspot-signature"),
    ..PLAIN
};

const TWILIO: Party = Party {
    library: "twilio",
    preset: "twilio",
    query: "?shop=1&name=Zo%C3%AB%20a+b",
    signature: Place::Header("x-twilio-signature"),
    is_addressed: true,
    id: Some("3f1c2b7e-0d4a-4a5b-9f5e-0a1b2c3d4e5f"),
    is_ours: false,
    ..PLAIN
};

pub(crate) const ADYEN: Party = Party {
    source: "adyen-python",
    library: "adyen",
    language: Python,
    preset: "adyen",
    body: r#"{"live":"false","notificationItems":[{"NotificationRequestItem":{"pspReference":"7914073381342284","merchantAccountCode":"Shop","merchantReference":"Order 1","amount":{"value":1999,"currency":"EUR"},"eventCode":"AUTHORISATION","success":"true","eventDate":"2026-11-30T10:00:00+01:00"}}]}"#,
    id: None,
    signature: Place::Body(r#""hmacSignature": ""#),
    is_ours: false,
    ..PLAIN
};

pub(crate) const ADYEN_PLATFORM: Party = Party {
    source: "adyen-platform-python",
    library: "adyen_platform",
    language: Python,
    preset: "adyen_platform",
    body: r#"{"data":{"id":"EVJN4","amount":{"value":1999}},"environment":"test","timestamp":"2026-11-30T10:00:00Z","type":"balancePlatform.transfer.updated"}"#,
    id: None,
    signature: Place::Header("hmacsignature"),
    ..PLAIN
};

pub(crate) const BRAINTREE: Party = Party {
    source: "braintree-node",
    library: "braintree",
    preset: "braintree",
    secret: Form::Text("integration_public_key:"),
    headers: &[("content-type", "application/x-www-form-urlencoded")],
    body: "",
    tampered: ("bt_payload=P", "bt_payload=Q"),
    id: None,
    signature: Place::Body("bt_signature=integration_public_key%7C"),
    is_ours: false,
    ..PLAIN
};

pub(crate) const COINBASE_COMMERCE: Party = Party {
    source: "coinbase-commerce-python",
    library: "coinbase_commerce",
    language: Python,
    preset: "coinbase_commerce",
    body: r#"{"attempt_number":1,"event":{"id":"evt_1","type":"charge:confirmed","created_at":"2026-11-30T10:00:00Z","data":{"id":"c_1","amount":1999,"name":"Zo\u00eb ☃"}},"id":"del_1","scheduled_for":"2026-11-30T10:00:00Z"}"#,
    signature: Place::Header("x-cc-webhook-signature"),
    ..PLAIN
};

pub(crate) const CONTENTFUL: Party = Party {
    source: "contentful-node",
    library: "contentful",
    preset: "contentful",
    query: "?space=a%20b&n=1",
    headers: &[
        ("content-type", "application/vnd.contentful.management.v1+json"),
        ("x-contentful-topic", "ContentManagement.Entry.publish"),
        ("x-contentful-idempotency-key", "evt_1"),
    ],
    body: r#"{"sys":{"type":"Entry","id":"e_1","revision":3,"updatedAt":"2026-11-30T10:00:00Z"},"fields":{"price":{"en":1999},"name":{"en":"Zo\u00eb ☃"}}}"#,
    signature: Place::Header("x-contentful-signature"),
    clock: Clock::Header("x-contentful-timestamp"),
    signed: &["x-contentful-topic", "x-contentful-signed-headers"],
    is_addressed: true,
    ..PLAIN
};

pub(crate) const DISCORD: Party = Party {
    source: "discord-node",
    library: "discord",
    preset: "discord",
    body: r#"{"version":1,"application_id":"1234560123453231555","type":1,"event":{"type":"ENTITLEMENT_CREATE","timestamp":"2026-11-30T10:00:00.000000","data":{"id":"1999","name":"Zo\u00eb ☃"}}}"#,
    id: None,
    signature: Place::Header("x-signature-ed25519"),
    clock: Clock::Header("x-signature-timestamp"),
    takes_old: true,
    is_ours: false,
    ..PLAIN
};

pub(crate) const GITHUB: Party = Party {
    source: "github-node",
    library: "github",
    preset: "github",
    headers: &[
        ("content-type", "application/json"),
        ("x-github-delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958"),
        ("x-github-event", "ping"),
    ],
    body: r#"{"zen":"Speak like a human.","hook_id":1999, "é":"☃"}"#,
    id: Some("72d3162e-cc78-11e3-81ab-4c9367dc0958"),
    signature: Place::Header("x-hub-signature-256"),
    ..PLAIN
};

pub(crate) const GOCARDLESS: Party = Party {
    source: "gocardless-python",
    library: "gocardless",
    language: Python,
    preset: "gocardless",
    body: r#"{"events":[{"id":"EV1","created_at":"2026-11-30T10:00:00Z","resource_type":"payments","action":"confirmed","links":{"payment":"PM1999"}}],"meta":{"webhook_id":"WB1"}}"#,
    id: None,
    signature: Place::Header("webhook-signature"),
    ..PLAIN
};

pub(crate) const HUBSPOT_V1: Party =
    Party { source: "hubspot-v1-node", library: "hubspot_v1", preset: "hubspot_v1", ..HUBSPOT };

pub(crate) const HUBSPOT_V2: Party = Party {
    source: "hubspot-v2-node",
    library: "hubspot_v2",
    preset: "hubspot_v2",
    query: "?x=1",
    is_addressed: true,
    ..HUBSPOT
};

pub(crate) const HUBSPOT_V3: Party = Party {
    source: "hubspot-v3-node",
    library: "hubspot_v3",
    preset: "hubspot_v3",
    query: "?x=1",
    signature: Place::Header("x-hubspot-signature-v3"),
    clock: Clock::Header("x-hubspot-request-timestamp"),
    is_addressed: true,
    ..HUBSPOT
};

pub(crate) const LINEAR: Party = Party {
    source: "linear-node",
    library: "linear",
    preset: "linear",
    headers: &[
        ("content-type", "application/json"),
        ("linear-delivery", "234d1a4e-b617-4388-90fe-adc3633d6b72"),
        ("linear-event", "Issue"),
    ],
    body: r#"{"action":"update","type":"Issue","data":{"id":"i_1","title":"Zo\u00eb ☃","estimate":1999},"webhookTimestamp":{ms}}"#,
    id: Some("234d1a4e-b617-4388-90fe-adc3633d6b72"),
    signature: Place::Header("linear-signature"),
    clock: Clock::Body(r#""webhookTimestamp":"#),
    ..PLAIN
};

pub(crate) const LIVEKIT: Party = Party {
    source: "livekit-node",
    library: "livekit",
    preset: "livekit",
    secret: Form::Text("APIforeign:"),
    headers: &[("content-type", "application/webhook+json")],
    body: r#"{"event":"room_started","id":"evt_1","createdAt":"{s}","room":{"sid":"RM_1999","name":"Zo\u00eb ☃"}}"#,
    signature: Place::Header("authorization"),
    clock: Clock::Token,
    is_ours: false,
    ..PLAIN
};

pub(crate) const NOTION: Party = Party {
    source: "notion-node",
    library: "notion",
    preset: "notion",
    signature: Place::Header("x-notion-signature"),
    ..PLAIN
};

pub(crate) const OPENAI: Party =
    Party { source: "openai-node", library: "openai", preset: "openai", ..STANDARD };

pub(crate) const PADDLE: Party = Party {
    source: "paddle-node",
    library: "paddle",
    preset: "paddle",
    secret: Form::Text("pdl_ntfset_"),
    body: r#"{"event_id":"evt_1","event_type":"transaction.completed","occurred_at":"2026-11-30T10:00:00.000000Z","notification_id":"ntf_1","data":{"id":"txn_1","total":"1999","name":"Zo\u00eb ☃"}}"#,
    signature: Place::Header("paddle-signature"),
    clock: Clock::Pair("ts="),
    ..PLAIN
};

pub(crate) const RAZORPAY: Party = Party {
    source: "razorpay-node",
    library: "razorpay",
    preset: "razorpay",
    headers: &[("content-type", "application/json"), ("x-razorpay-event-id", "evt_1")],
    body: r#"{"entity":"event","event":"payment.captured","payload":{"payment":{"entity":{"id":"pay_1","amount":1999,"notes":"Zo\u00eb ☃"}}},"created_at":{s}}"#,
    signature: Place::Header("x-razorpay-signature"),
    ..PLAIN
};

pub(crate) const REPLICATE: Party = Party {
    source: "replicate-node",
    library: "replicate",
    preset: "replicate",
    takes_old: true,
    ..STANDARD
};

pub(crate) const RESEND: Party =
    Party { source: "resend-node", library: "resend", preset: "resend", ..SVIX };

pub(crate) const SANITY: Party = Party {
    source: "sanity-node",
    library: "sanity",
    preset: "sanity",
    headers: &[
        ("content-type", "application/json"),
        ("idempotency-key", "evt_1"),
        ("sanity-operation", "update"),
    ],
    body: r#"{"_id":"doc-1","_type":"product","_rev":"a1","price":1999,"name":"Zo\u00eb ☃"}"#,
    signature: Place::Header("sanity-webhook-signature"),
    clock: Clock::Pair("t="),
    takes_old: true,
    ..PLAIN
};

pub(crate) const SENDGRID: Party = Party {
    source: "sendgrid-node",
    library: "sendgrid",
    preset: "sendgrid",
    body: "[{\"email\":\"zoe@example.com\",\"timestamp\":{s},\"event\":\"delivered\",\"sg_event_id\":\"ev1999\",\"sg_message_id\":\"m1\"}]\r\n",
    id: None,
    signature: Place::Header("x-twilio-email-event-webhook-signature"),
    clock: Clock::Header("x-twilio-email-event-webhook-timestamp"),
    takes_old: true,
    is_ours: false,
    ..PLAIN
};

pub(crate) const SHOPIFY: Party = Party {
    source: "shopify-node",
    library: "shopify",
    preset: "shopify",
    headers: &[
        ("content-type", "application/json"),
        ("x-shopify-topic", "orders/create"),
        ("x-shopify-shop-domain", "example.myshopify.com"),
        ("x-shopify-api-version", "2026-01"),
        ("x-shopify-webhook-id", "b54557e4-bdd9-4b37-8a5f-bf7d70bcd043"),
    ],
    id: Some("b54557e4-bdd9-4b37-8a5f-bf7d70bcd043"),
    signature: Place::Header("x-shopify-hmac-sha256"),
    ..PLAIN
};

pub(crate) const SLACK: Party = Party {
    source: "slack-python",
    library: "slack",
    language: Python,
    preset: "slack",
    body: r#"{"type":"event_callback","event_id":"evt_1","event_time":{s},"event":{"type":"message","channel":"C1","channel_type":"channel","text":"1999 Zo\u00eb ☃"}}"#,
    signature: Place::Header("x-slack-signature"),
    clock: Clock::Header("x-slack-request-timestamp"),
    ..PLAIN
};

pub(crate) const SQUARE: Party = Party {
    source: "square-python",
    library: "square",
    language: Python,
    preset: "square",
    address_in: Some("notification_url"),
    body: r#"{"merchant_id":"M1","type":"payment.updated","event_id":"evt_1","created_at":"2026-11-30T10:00:00Z","data":{"type":"payment","id":"p_1","object":{"payment":{"id":"p_1","version":2,"amount":1999,"note":"Zo\u00eb ☃"}}}}"#,
    signature: Place::Header("x-square-hmacsha256-signature"),
    ..PLAIN
};

pub(crate) const STANDARD_NODE: Party = Party {
    source: "standard-node",
    library: "standardwebhooks",
    preset: "standard_webhooks",
    ..STANDARD
};

pub(crate) const STANDARD_PYTHON: Party =
    Party { source: "standard-python", language: Python, ..STANDARD_NODE };

pub(crate) const STRIPE_NODE: Party = Party { source: "stripe-node", ..STRIPE };

pub(crate) const STRIPE_PYTHON: Party =
    Party { source: "stripe-python", language: Python, ..STRIPE };

pub(crate) const SVIX_NODE: Party = Party { source: "svix-node", ..SVIX };

pub(crate) const SVIX_PYTHON: Party = Party { source: "svix-python", language: Python, ..SVIX };

pub(crate) const TWILIO_FORM: Party = Party {
    source: "twilio-form-node",
    headers: &[
        ("content-type", "application/x-www-form-urlencoded; charset=UTF-8"),
        ("i-twilio-idempotency-token", "3f1c2b7e-0d4a-4a5b-9f5e-0a1b2c3d4e5f"),
    ],
    // repeated, empty, escaped in both ways, and not in the order in which it is signed
    body: "To=%2B15551999&MessageSid=SM1&Body=Zo%C3%AB+%E2%98%83&Empty=&Media=b&Media=a&Media=b&From=%2B1555",
    ..TWILIO
};

pub(crate) const TWILIO_JSON: Party = Party {
    source: "twilio-json-node",
    headers: &[
        ("content-type", "application/json"),
        ("i-twilio-idempotency-token", "3f1c2b7e-0d4a-4a5b-9f5e-0a1b2c3d4e5f"),
    ],
    ..TWILIO
};

// It signs what it parsed and wrote again, so the body is spelled as it writes.
pub(crate) const WORKOS: Party = Party {
    source: "workos-node",
    library: "workos",
    preset: "workos",
    body: r#"{"id":"evt_1","event":"dsync.user.created","created_at":"2026-11-30T10:00:00.000Z","data":{"object":"directory_user","id":"u_1","directory_id":"d_1","organization_id":"o_1","idp_id":"1999","first_name":"Zoë ☃","emails":[],"state":"active","raw_attributes":{},"custom_attributes":{},"created_at":"2026-11-30T10:00:00.000Z","updated_at":"2026-11-30T10:00:00.000Z"}}"#,
    signature: Place::Header("workos-signature"),
    clock: Clock::Pair("t="),
    ..PLAIN
};

// So is this.
pub(crate) const ZOOM: Party = Party {
    source: "zoom-node",
    library: "zoom",
    preset: "zoom",
    body: r#"{"event":"meeting.started","payload":{"account_id":"a","object":{"id":"1999","topic":"Zoë ☃"}},"event_ts":{ms}}"#,
    id: None,
    signature: Place::Header("x-zm-signature"),
    clock: Clock::Header("x-zm-request-timestamp"),
    takes_old: true,
    ..PLAIN
};
