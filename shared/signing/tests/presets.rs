//! What the presets read out of requests, for the providers that no vector covers: bodies as their documentation shows them.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use http::{HeaderMap, HeaderName};
use jiff::Timestamp;
use signing::{
    Identity, Key, Request, Scheme, Secret, Trust, Version, elements, preset_names, verify,
};

const NOW: i64 = 1_767_225_600;
const TOKEN: &str = "a-token-with-enough-bytes";

/// Reads a request by the names of a preset. Its signature is left out: what stands where is another matter.
fn read(preset: &str, headers: &[(&str, &str)], body: &str) -> Vec<Identity> {
    let whole = serde_json::to_value(Scheme::preset(preset).unwrap()).unwrap();
    let mut open =
        serde_json::json!({ "algorithm": "token", "signature": { "from": "{header:x-open}" } });
    for key in ["identity", "element", "batch"] {
        if !whole[key].is_null() {
            open[key] = whole[key].clone();
        }
    }
    let open = Scheme::from_value(open).unwrap();
    let mut map = HeaderMap::new();
    for (name, value) in [("x-open", TOKEN)].iter().chain(headers) {
        map.insert(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
    }
    let key = Key::parse(&open, "k", &Secret::new(TOKEN)).unwrap();
    let body = body.as_bytes();
    let request = Request { method: "POST", url: "", headers: &map, body, path_secret: None };
    let now = Timestamp::from_second(NOW).unwrap();
    let verified = verify(&open, &[key], &request, now).unwrap();
    if open.is_batch() {
        elements(&open, body).unwrap().into_iter().map(|element| element.identity).collect()
    } else {
        vec![verified.into_identity()]
    }
}

/// Id, type, kind and id of the object, in one line; `-` for what is not there.
fn check(preset: &str, headers: &[(&str, &str)], body: &str, expected: &str) -> Identity {
    let mut all = read(preset, headers, body);
    let identity = all.remove(0);
    assert!(all.is_empty(), "{preset} has more than one");
    let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
    let Identity { id, event_type, object_type, object_id, .. } = &identity;
    let line = [id, event_type, object_type, object_id].map(text).join(" ");
    assert_eq!(line, expected, "{preset}");
    identity
}

#[test]
fn payments_and_commerce() {
    let square = r#"{"merchant_id":"M","type":"payment.updated","event_id":"e1","created_at":"2026-01-01T00:00:00Z",
        "data":{"type":"payment","id":"p1","object":{"payment":{"id":"p1","version":7}}}}"#;
    let identity = check("square", &[], square, "e1 payment.updated payment p1");
    assert_eq!((identity.version, identity.version_is_trusted), (Some(Version::Number(7)), false));
    assert!(identity.occurred_at.is_some());
    let paypal = r#"{"id":"WH-1","create_time":"2026-01-01T00:00:00.000Z","resource_type":"capture","event_type":"PAYMENT.CAPTURE.COMPLETED","resource":{"id":"42"}}"#;
    let identity = check(
        "paypal",
        &[("paypal-transmission-id", "t1")],
        paypal,
        "WH-1 PAYMENT.CAPTURE.COMPLETED capture 42",
    );
    assert_eq!(identity.delivery.as_deref(), Some("t1"));
    let mollie = r#"{"resource":"event","id":"event_1","type":"payment-link.paid","entityId":"pl_1","createdAt":"2026-01-01T00:00:00.0Z"}"#;
    check("mollie_next", &[], mollie, "event_1 payment-link.paid payment-link pl_1");
    check("mollie", &[], "id=tr_1", "tr_1@1767225600000 - - tr_1");
    let coinbase = r#"{"id":"d1","scheduled_for":"x","event":{"id":"e1","type":"charge:confirmed","created_at":"2026-01-01T00:00:00Z","data":{"id":"c1"}}}"#;
    let identity = check("coinbase_commerce", &[], coinbase, "e1 charge:confirmed charge c1");
    assert_eq!(identity.delivery.as_deref(), Some("d1"));
    let plaid =
        r#"{"webhook_type":"TRANSACTIONS","webhook_code":"SYNC_UPDATES_AVAILABLE","item_id":"i1"}"#;
    let identity = read("plaid", &[], plaid).remove(0);
    assert!(identity.id.unwrap().ends_with("@1767225600000"));
    assert_eq!(identity.event_type.as_deref(), Some("TRANSACTIONS.SYNC_UPDATES_AVAILABLE"));
    check(
        "flutterwave_v3",
        &[],
        r#"{"event":"charge.completed","data":{"id":285959875}}"#,
        "- charge.completed charge 285959875",
    );
    check(
        "flutterwave_v4",
        &[],
        r#"{"webhook_id":"w","timestamp":1767225600000,"type":"charge.completed","data":{"id":"chg_1"}}"#,
        "- charge.completed charge chg_1",
    );
    check(
        "paystack",
        &[],
        r#"{"event":"charge.success","data":{"id":302961}}"#,
        "- charge.success charge 302961",
    );
    let lemon = r#"{"meta":{"event_name":"order_created"},"data":{"type":"orders","id":"1","attributes":{"updated_at":"2026-01-01T00:00:00.000000Z"}}}"#;
    assert!(check("lemonsqueezy", &[], lemon, "- order_created orders 1").version.is_some());
    let woo = [
        ("x-wc-webhook-delivery-id", "d1"),
        ("x-wc-webhook-topic", "order.updated"),
        ("x-wc-webhook-resource", "order"),
    ];
    check(
        "woocommerce",
        &woo,
        r#"{"id":727,"date_modified_gmt":"2026-01-01T00:00:00"}"#,
        "d1 order.updated order 727",
    );
    let big = |at: u32| {
        format!(
            r#"{{"scope":"store/order/updated","data":{{"type":"order","id":250}},"hash":"dd70","created_at":{at}}}"#
        )
    };
    check("bigcommerce", &[], &big(1), "dd70:1 store/order/updated order 250");
    assert_ne!(read("bigcommerce", &[], &big(1)), read("bigcommerce", &[], &big(2)));
    let xero = r#"{"events":[{"resourceId":"r1","eventDateUtc":"2026-01-01T00:00:00.1","eventType":"UPDATE","eventCategory":"INVOICE"}],"entropy":"x"}"#;
    check("xero", &[], xero, "- INVOICE.UPDATE INVOICE r1");
    assert_eq!(read("xero", &[], r#"{"events":[],"entropy":"x"}"#), []);
    let entity = |id: u8| {
        format!(
            r#"{{"name":"Customer","id":"{id}","operation":"Create","lastUpdated":"2026-01-01T00:00:00.000Z"}}"#
        )
    };
    let intuit = |entities: &str| {
        format!(
            r#"{{"eventNotifications":[{{"realmId":"1","dataChangeEvent":{{"entities":[{entities}]}}}}]}}"#
        )
    };
    check("quickbooks", &[], &intuit(&entity(1)), "- Customer.Create Customer 1");
    check(
        "quickbooks",
        &[],
        &intuit(&[entity(1), entity(2)].join(",")),
        "- Customer.Create Customer -",
    );
    let mux = r#"{"type":"video.asset.ready","id":"e1","created_at":"2026-01-01T00:00:00.000000Z","object":{"type":"asset","id":"a1"}}"#;
    assert!(check("mux", &[], mux, "e1 video.asset.ready asset a1").version.is_some());
}

#[test]
fn developer_platforms() {
    let gitlab = [
        ("idempotency-key", "k1"),
        ("x-gitlab-event", "Issue Hook"),
        ("x-gitlab-event-uuid", "u1"),
    ];
    let body = r#"{"object_kind":"issue","object_attributes":{"id":301,"updated_at":"2026-01-01T00:00:00Z"}}"#;
    let identity = check("gitlab", &gitlab, body, "k1 Issue Hook issue 301");
    assert_eq!(identity.delivery.as_deref(), Some("u1"));
    check("gitlab", &[("x-gitlab-event-uuid", "shared")], "{}", "- - - -");
    check(
        "gitlab_signed",
        &[("webhook-id", "w1"), ("x-gitlab-event", "Issue Hook")],
        body,
        "w1 Issue Hook issue 301",
    );
    let bitbucket = [("x-request-uuid", "r1"), ("x-event-key", "pullrequest:created")];
    check(
        "bitbucket",
        &bitbucket,
        r#"{"pullrequest":{"id":3},"repository":{"uuid":"{a}"}}"#,
        "r1 pullrequest:created pullrequest 3",
    );
    check(
        "bitbucket",
        &[("x-event-key", "repo:push")],
        r#"{"repository":{"uuid":"{a}"}}"#,
        "- repo:push repo {a}",
    );
    let jira =
        r#"{"timestamp":1767225600000,"webhookEvent":"jira:issue_updated","issue":{"id":"99291"}}"#;
    check(
        "jira",
        &[("x-atlassian-webhook-identifier", "j1")],
        jira,
        "j1 jira:issue_updated issue 99291",
    );
    check(
        "sentry",
        &[("request-id", "s1"), ("sentry-hook-resource", "issue")],
        r#"{"action":"created","data":{"issue":{"id":"1"}}}"#,
        "s1 issue issue 1",
    );
    check(
        "vercel",
        &[],
        r#"{"id":"uev_1","type":"deployment.created","createdAt":1767225600000,"payload":{"deployment":{"id":"dpl_1"}}}"#,
        "uev_1 deployment.created deployment dpl_1",
    );
    check(
        "netlify",
        &[("x-netlify-event", "deploy_created")],
        r#"{"id":"d1","updated_at":"2026-01-01T00:00:00Z"}"#,
        "- deploy_created deploy d1",
    );
    check("launchdarkly", &[], r#"{"_id":"l1","kind":"flag","date":1767225600000}"#, "l1 flag - -");
    let pager = r#"{"event":{"id":"e1","event_type":"incident.triggered","resource_type":"incident","occurred_at":"2026-01-01T00:00:00Z","data":{"id":"P1"}}}"#;
    let identity =
        check("pagerduty", &[("x-webhook-id", "w1")], pager, "w1 incident.triggered incident P1");
    assert!(identity.occurred_at.is_some());
    let contentful =
        r#"{"sys":{"type":"Entry","id":"c1","version":13,"updatedAt":"2026-01-01T00:00:00.000Z"}}"#;
    let identity = check(
        "contentful",
        &[("x-contentful-topic", "ContentManagement.Entry.save")],
        contentful,
        "- ContentManagement.Entry.save Entry c1",
    );
    assert_eq!(identity.version, Some(Version::Number(13)));
    let discord = r#"{"version":1,"application_id":"1","type":1,"event":{"type":"ENTITLEMENT_CREATE","timestamp":"2026-01-01T00:00:00.000000","data":{}}}"#;
    check("discord", &[], discord, "- ENTITLEMENT_CREATE - -");
    let graph = r#"{"value":[{"id":"n1","clientState":"s","changeType":"updated","resourceData":{"@odata.type":"\u0023Microsoft.Graph.Message","id":"m1"}},
        {"clientState":"s","lifecycleEvent":"missed"}]}"#;
    let all = read("ms_graph", &[], graph);
    let names: Vec<_> = all
        .iter()
        .map(|one| (one.id.as_deref(), one.event_type.as_deref(), one.object_id.as_deref()))
        .collect();
    assert_eq!(names, [(Some("n1"), Some("updated"), Some("m1")), (None, Some("missed"), None)]);
    assert!(Scheme::preset("ms_graph").unwrap().counts_every_request());
    let okta = r#"{"eventId":"d1","data":{"events":[{"uuid":"u1","published":"2026-01-01T00:00:00.000Z","eventType":"user.lifecycle.create","target":[{"id":"00u1","type":"User"}]}]}}"#;
    check("okta", &[], okta, "u1 user.lifecycle.create User 00u1");
    check(
        "auth0",
        &[],
        r#"[{"log_id":"l1","data":{"date":"2026-01-01T00:00:00.000Z","type":"s","user_id":"auth0|1"}}]"#,
        "l1 s user auth0|1",
    );
}

#[test]
fn communication_and_the_rest() {
    check(
        "resend",
        &[("svix-id", "m1")],
        r#"{"type":"email.bounced","created_at":"2026-01-01T00:00:00.000Z","data":{"email_id":"e1"}}"#,
        "m1 email.bounced email e1",
    );
    check(
        "replicate",
        &[("webhook-id", "m1")],
        r#"{"id":"p1","status":"succeeded","completed_at":"2026-01-01T00:00:00.000Z"}"#,
        "m1 prediction.succeeded prediction p1",
    );
    check(
        "polar",
        &[("webhook-id", "m1")],
        r#"{"type":"order.created","data":{"id":"o1","modified_at":"2026-01-01T00:00:00Z"}}"#,
        "m1 order.created order o1",
    );
    check(
        "slack_command",
        &[],
        "command=%2Fdeploy&trigger_id=1.2.a",
        "1.2.a slash_command command /deploy",
    );
    check(
        "intercom",
        &[],
        r#"{"id":"notif_1","topic":"conversation.user.created","created_at":1767225600,"data":{"item":{"type":"conversation","id":"c1","updated_at":5}}}"#,
        "notif_1 conversation.user.created conversation c1",
    );
    let zendesk = [("x-zendesk-webhook-invocation-id", "i1")];
    check(
        "zendesk",
        &zendesk,
        r#"{"type":"zen:event-type:user.created","subject":"zen:user:123","detail":{"id":"123"},"time":"2026-01-01T00:00:00Z"}"#,
        "i1 zen:event-type:user.created - zen:user:123",
    );
    check("zendesk", &zendesk, "", "i1 - - -");
    let envelope = |count: u8| {
        format!(
            r#"{{"event":"envelope-completed","retryCount":{count},"generatedDateTime":"2026-01-01T00:00:00.0000000Z","data":{{"envelopeId":"e1"}}}}"#
        )
    };
    let id = "envelope-completed:e1:2026-01-01T00:00:00.0000000Z";
    for count in [0, 1] {
        check("docusign", &[], &envelope(count), &format!("{id} envelope-completed envelope e1"));
    }
    check(
        "typeform",
        &[],
        r#"{"event_id":"e1","event_type":"form_response","form_response":{"form_id":"f1","token":"t1","submitted_at":"2026-01-01T00:00:00Z"}}"#,
        "e1 form_response form f1",
    );
    check(
        "calendly",
        &[],
        r#"{"event":"invitee.created","created_at":"2026-01-01T00:00:00.000000Z","payload":{"uri":"https://a/1","id":"no"},"id":"no"}"#,
        "- invitee.created invitee https://a/1",
    );
    check(
        "mailgun",
        &[],
        r#"{"signature":{"timestamp":"1","token":"t","signature":"s"},"event-data":{"id":"e1","event":"opened","message":{"headers":{"message-id":"m1"}}}}"#,
        "e1 opened message m1",
    );
    check("postmark", &[], r#"{"RecordType":"Open","MessageID":"m1"}"#, "- Open message m1");
    let (one, other) =
        (read("dropbox", &[], "{}").remove(0), read("dropbox", &[], "{} ").remove(0));
    assert!(one.id.unwrap().ends_with("@1767225600000") && other.id.is_some());
    check(
        "asana",
        &[],
        r#"{"events":[{"action":"changed","created_at":"2026-01-01T00:00:00.000Z","resource":{"gid":"1","resource_type":"task"}}]}"#,
        "- task.changed task 1",
    );
    check(
        "monday",
        &[],
        r#"{"event":{"type":"update_column_value","triggerUuid":"u1","pulseId":7,"triggerTime":"2026-01-01T00:00:00.000Z"}}"#,
        "u1 update_column_value item 7",
    );
    check(
        "line",
        &[],
        r#"{"destination":"U","events":[{"type":"message","webhookEventId":"01F","timestamp":1767225600000,"source":{"type":"user","userId":"U1"}}]}"#,
        "01F message user U1",
    );
    check(
        "workos",
        &[],
        r#"{"id":"event_1","event":"dsync.user.created","created_at":"2026-01-01T00:00:00.000Z","data":{"object":"directory_user","id":"du_1"}}"#,
        "event_1 dsync.user.created directory_user du_1",
    );
    check(
        "livekit",
        &[],
        r#"{"event":"room_started","id":"EV_1","createdAt":1767225600,"room":{"sid":"RM_1"}}"#,
        "EV_1 room_started room RM_1",
    );
    check(
        "x_twitter",
        &[],
        r#"{"for_user_id":"2244994945","tweet_create_events":[]}"#,
        "- - user 2244994945",
    );
    check(
        "hubspot_v2",
        &[],
        r#"[{"eventId":1,"subscriptionId":2,"objectId":3,"occurredAt":4,"subscriptionType":"contact.creation"}]"#,
        "1:2:3:4 contact.creation contact 3",
    );
    let meta = |messages: &str| {
        format!(
            r#"{{"entry":[{{"id":"1","changes":[{{"field":"messages","value":{{"metadata":{{"phone_number_id":"9"}},"messages":[{messages}]}}}}]}}]}}"#
        )
    };
    check("meta_whatsapp", &[], &meta(r#"{"id":"m1","timestamp":"5"}"#), "m1 messages phone 9");
    // an entry with another message beside an old one is no repeat of the old one
    check(
        "meta_whatsapp",
        &[],
        &meta(r#"{"id":"m1","timestamp":"5"},{"id":"m2","timestamp":"5"}"#),
        "- messages phone 9",
    );
    check(
        "meta",
        &[],
        r#"{"object":"page","entry":[{"id":"1","changes":[{"field":"feed","value":{}}]}]}"#,
        "- feed - 1",
    );
}

/// Weaker modes are known as such, each for its reason.
#[test]
fn whoever_signs_no_body_is_flagged() {
    let mut weaker: Vec<(String, &str)> = preset_names()
        .filter_map(Scheme::preset)
        .filter(|scheme| scheme.trust() != Trust::Signed)
        .map(|scheme| (scheme.name().to_owned(), scheme.trust().as_str()))
        .collect();
    weaker.sort_by_key(|(_, trust)| *trust);
    let of = |trust: &str| -> Vec<&str> {
        weaker.iter().filter(|(_, other)| *other == trust).map(|(name, _)| name.as_str()).collect()
    };
    assert_eq!(of("body_unsigned"), ["adyen", "aws_sns", "mailgun", "paypal"]);
    assert_eq!(of("none"), ["monday"]);
    assert_eq!(
        of("token"),
        [
            "auth0",
            "bigcommerce",
            "flutterwave_v3",
            "gitlab",
            "mail_slot_basic",
            "mail_slot_path",
            "mail_slot_token",
            "mollie",
            "ms_graph",
            "okta",
            "postmark"
        ]
    );
}

#[test]
fn whether_an_id_is_signed_is_known_of_every_preset() {
    let signs = |name: &str| Scheme::preset(name).unwrap().signs_id();
    for signed in [
        "stripe",
        "standard_webhooks",
        "slack",
        "aws_sns",
        "adyen",
        "gocardless",
        "hubspot_v1",
        "square",
        "docusign",
    ] {
        assert!(signs(signed), "{signed}");
    }
    for unsigned in [
        "github",
        "shopify",
        "box",
        "linear",
        "bitbucket",
        "pagerduty",
        "mailgun",
        "gitlab",
        "paypal",
        "twilio",
        "monday",
    ] {
        assert!(!signs(unsigned), "{unsigned}");
    }
}
