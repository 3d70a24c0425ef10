//! What owners of endpoints are told, as an entry of the operators' bus. Who is to hear it by mail or by chat is a rule on
//! that bus.

use aws_sdk_eventbridge::types::PutEventsRequestEntry;
use domain::{
    endpoint::{Endpoint, Notice},
    ports::{Notices, StoreError, Stored},
};
use runtime::aws::is_throttled;
use serde_json::json;

use super::targets::{AwsTargets, EntryFailed};

/// Whose words they are. An endpoint's entries come from `postern.<tenant>`, so that our role can tell them apart.
const SOURCE: &str = "postern";

/// What a rule on the bus sees of a notice. No URL: it may hold a token.
fn detail(endpoint: &Endpoint, notice: &Notice) -> String {
    let Endpoint { tenant, id, description, .. } = endpoint;
    json!({
        "id": notice.id(endpoint),
        "tenant": tenant,
        "endpoint": id,
        "description": description,
        "since": notice.since,
        "reason": notice.reason,
        "words": notice.words(),
    })
    .to_string()
}

impl Notices for AwsTargets {
    async fn tell(&self, endpoint: &Endpoint, notice: &Notice) -> Stored<()> {
        let entry = PutEventsRequestEntry::builder()
            .event_bus_name(self.own_bus.to_string())
            .source(SOURCE)
            .detail_type(notice.what.name())
            .detail(detail(endpoint, notice))
            .resources(endpoint.id.to_string())
            .build();
        let put = self.buses.put_events().entries(entry).send().await;
        let put = put.map_err(|error| StoreError::Unavailable(error.into()))?;
        // The whole is a success whatever became of its parts.
        let (code, id) = match put.entries() {
            [entry] => (entry.error_code(), entry.event_id()),
            _ => (None, None),
        };
        if code.is_none() && id.is_some() && put.failed_entry_count() == 0 {
            return Ok(());
        }
        let throttled = is_throttled(code, 200);
        let code = code.unwrap_or("no code").to_owned();
        let failed = EntryFailed { code, message: String::new() }.into();
        let error = if throttled { StoreError::Throttled } else { StoreError::Unavailable };
        Err(error(failed))
    }
}

#[cfg(test)]
mod tests {
    use domain::{destination::Destination, endpoint::What, id::EndpointId};
    use jiff::Timestamp;
    use serde_json::Value;

    use super::*;

    /// DLV-disable-notice, SEC-url-token
    #[test]
    fn a_notice_says_whose_endpoint_and_why_and_not_where() {
        let url = Destination::Https("https://example.com/hook?token=s3cret".to_owned());
        let id: EndpointId = format!("ep_{:032x}", 7).parse().unwrap();
        let endpoint = Endpoint::new("acme".parse().unwrap(), id, url, Timestamp::UNIX_EPOCH);
        let since = Timestamp::from_millisecond(1_790_000_000_123).unwrap();
        let notice = Notice { what: What::Disabled, since, reason: "gone".to_owned() };
        let text = detail(&endpoint, &notice);
        assert!(!text.contains("s3cret") && !text.contains("example.com"), "{text}");
        let detail: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(detail["id"], format!("{id}/endpoint.disabled/1790000000123"));
        assert_eq!((&detail["tenant"], &detail["reason"]), (&json!("acme"), &json!("gone")));
        assert!(detail["words"].as_str().unwrap().contains("enable it"), "{detail}");
    }
}
