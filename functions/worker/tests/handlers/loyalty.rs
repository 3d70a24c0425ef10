//! Points for an order: once per order, in whatever words and however often the shop says that it is paid.

use domain::{
    id::TenantId,
    plan::{Change, Emit, OperationKey, Plan},
};
use serde::Deserialize;
use serde_json::json;

use super::{Current, Event, Own};

#[derive(Debug)]
pub(super) struct Loyalty;

#[derive(Deserialize)]
struct Order {
    id: String,
    customer: String,
    total_cents: u64,
}

impl Own for Loyalty {
    fn plan(&self, event: &Event<'_>, _: &Current) -> Plan {
        if !matches!(event.event_type(), Some("order.paid" | "order.completed")) {
            return Plan::ignored("not_ours: no order is paid by it");
        }
        let Some(order) = event.read::<Order>("/order") else {
            return Plan::reject("malformed: an order has id, customer and a whole total_cents");
        };
        let points = json!({ "customer": order.customer, "points": order.total_cents / 100 });
        let told = Emit::new(TenantId::internal(), "points.granted", &order.id, points.to_string());
        Change::once(OperationKey::of(&["points", &order.id])).then_emit(told).into()
    }
}
