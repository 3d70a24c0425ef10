//! Who did what is written down, before it is done.

use axum::{body::Body, http::Request};
use domain::{
    body::{Place, Sha256Hash, StoredBody},
    event::Origin,
    id::InboxKey,
    inbox::{Claim, Failure, NewRow},
    ports::Inbox as _,
};
use lambda_http::{
    aws_lambda_events::apigw::{
        ApiGatewayRequestAuthorizer, ApiGatewayRequestAuthorizerIamDescription,
        ApiGatewayV2httpRequestContext,
    },
    request::RequestContext,
};
use serde_json::json;
use testkit::chaos::{Fault, When};

use crate::deployment::{Deployment, at, now, source};

impl Deployment {
    async fn with_parked(self) -> Self {
        let key = InboxKey::new("stripe".parse().unwrap(), "evt_1").unwrap();
        let row = NewRow {
            key: key.clone(),
            event_type: None,
            received_at: at(-9),
            due_at: at(9),
            body: StoredBody {
                sha256: Sha256Hash::of(b""),
                length: 0,
                place: Place::Inline(vec![]),
            },
            headers: std::collections::BTreeMap::new(),
            object: None,
            version: None,
            occurred_at: None,
            origin: Origin::Webhook,
            key_id: None,
            token: String::new(),
            traceparent: None,
            delivery_id: None,
            parent: None,
        };
        self.0.inbox.accept(&row).await.unwrap();
        let claim = Claim { key, cycle: 0 };
        let _ = self.0.inbox.park(&claim, 1, &Failure::new("x", "y"), now()).await.unwrap();
        self
    }

    pub(crate) fn audited(&self) -> Vec<(String, String, String, String)> {
        let tables = self.0.registry.tables();
        let entry = |entry: &domain::ports::AuditEntry| {
            assert_eq!(entry.at, now());
            let (tenant, actor) = (entry.tenant.clone(), entry.actor.clone());
            (tenant, actor, entry.action.clone(), entry.subject.clone())
        };
        tables.audit.iter().map(entry).collect()
    }
}

fn signed_by(arn: &str, request: &mut Request<Body>) {
    let mut iam = ApiGatewayRequestAuthorizerIamDescription::default();
    iam.user_arn = Some(arn.to_owned());
    let mut authorizer = ApiGatewayRequestAuthorizer::default();
    authorizer.iam = Some(iam);
    let mut context = ApiGatewayV2httpRequestContext::default();
    context.authorizer = Some(authorizer);
    request.extensions_mut().insert(RequestContext::ApiGatewayV2(context));
}

#[tokio::test]
async fn changes_are_written_down_with_who_made_them() {
    let postern = Deployment::new().with_parked().await;
    let arn = "arn:aws:iam::1:user/ann";
    let mut request = Request::post("/v1/sources")
        .header("content-type", "application/json")
        .body(Body::from(source("stripe").to_string()))
        .unwrap();
    signed_by(arn, &mut request);
    postern.send(request).await.good(201);
    let endpoint = json!({"url": "https://example.com/"});
    let made = postern.post("/v1/tenants/acme/endpoints", &endpoint).await.good(201);
    postern.ask("/v1/sources/stripe/events/evt_1/replay").await.good(202);
    postern.patch("/v1/sources/stripe", &json!({"dedupe": "content"})).await.good(200);
    let secret = json!({"id": "2027", "secret": "whsec_0123456789abcdef0123456789"});
    postern.post("/v1/sources/stripe/secrets", &secret).await.good(201);
    postern.delete("/v1/sources/stripe/secrets/2026").await.good(200);

    let text = str::to_owned;
    let entry =
        |tenant, actor, action, subject| (text(tenant), text(actor), text(action), text(subject));
    let id = made["id"].as_str().unwrap();
    assert_eq!(
        postern.audited(),
        [
            entry("-", arn, "source.add", "stripe"),
            entry("acme", "unknown", "endpoint.add", id),
            entry("-", "unknown", "event.replay", "stripe#evt_1"),
            entry("-", "unknown", "source.change", "stripe"),
            entry("-", "unknown", "source.add_secret", "stripe#2027"),
            entry("-", "unknown", "source.remove_secret", "stripe#2026"),
        ]
    );
}

/// OUT-error-after-commit
#[tokio::test]
async fn nothing_is_done_that_cannot_be_written_down() {
    let postern = Deployment::new().with_parked().await;
    postern.0.registry.chaos.on("configure.audit", When::Before, Fault::Unavailable);
    postern.post("/v1/sources", &source("stripe")).await.problem(503, "unavailable");
    let endpoint = json!({"url": "https://example.com/"});
    postern.post("/v1/tenants/acme/endpoints", &endpoint).await.problem(503, "unavailable");
    postern.ask("/v1/sources/stripe/events/evt_1/replay").await.problem(503, "unavailable");
    assert!(postern.0.registry.tables().sources.is_empty());
    postern.0.registry.chaos.heal();
    postern.post("/v1/sources", &source("stripe")).await.good(201);
    postern.0.registry.chaos.on("configure.audit", When::Before, Fault::Unavailable);
    let content = json!({"dedupe": "content"});
    postern.patch("/v1/sources/stripe", &content).await.problem(503, "unavailable");
    let secret = json!({"id": "2027", "secret": "whsec_0123456789abcdef0123456789"});
    postern.post("/v1/sources/stripe/secrets", &secret).await.problem(503, "unavailable");
    let path = "/v1/sources/stripe/secrets/2026?force=true";
    postern.delete(path).await.problem(503, "unavailable");
    postern.0.registry.chaos.heal();
    let shown = postern.get("/v1/sources/stripe").await.good(200);
    assert_eq!((&shown["dedupe"], &shown["secrets"][0]["id"]), (&json!("id"), &json!("2026")));
    assert_eq!(shown["secrets"].as_array().unwrap().len(), 1);
    let tables = postern.0.registry.tables();
    assert!(tables.endpoints.is_empty());
    let inbox = postern.0.inbox.tables();
    assert!(inbox.inbox.values().all(|item| item.row.cycle == 0));
}
