//! Which route takes a request: a full match first, then parameters, then greedy ones, then `$default`.

use std::collections::BTreeMap;

use super::event::decoded;

/// A route as the template writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    method: String,
    path: String,
    segments: Vec<Segment>,
}

// The order is the order of precedence.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Segment {
    Exact(String),
    Parameter(String),
    Greedy(String),
    Default,
}

/// Which route took a request, and what stood for its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matched {
    /// The place of the route in the list.
    pub index: usize,
    /// `POST /webhooks/{source}`, or `$default`.
    pub key: String,
    /// The parameters, decoded.
    pub parameters: BTreeMap<String, String>,
}

impl Route {
    /// A route of the template: method or `ANY`, and a path or `$default`.
    #[must_use]
    pub fn new(method: &str, path: &str) -> Self {
        let segment =
            |text: &str| match text.strip_prefix('{').and_then(|text| text.strip_suffix('}')) {
                Some(name) => match name.strip_suffix('+') {
                    Some(name) => Segment::Greedy(name.to_owned()),
                    None => Segment::Parameter(name.to_owned()),
                },
                None => Segment::Exact(text.to_owned()),
            };
        let segments = match path {
            "$default" | "/$default" => vec![Segment::Default],
            path => path.trim_start_matches('/').split('/').map(segment).collect(),
        };
        Self { method: method.to_ascii_uppercase(), path: path.to_owned(), segments }
    }

    /// `routeKey` of the event.
    #[must_use]
    pub fn key(&self) -> String {
        match self.segments.as_slice() {
            [Segment::Default] => "$default".to_owned(),
            _ => format!("{} {}", self.method, self.path),
        }
    }

    fn takes(&self, method: &str, path: &str) -> Option<BTreeMap<String, String>> {
        if self.segments == [Segment::Default] {
            return Some(BTreeMap::new());
        }
        if self.method != "ANY" && self.method != method {
            return None;
        }
        let mut parameters = BTreeMap::new();
        let mut rest = path.strip_prefix('/')?.split('/');
        for segment in &self.segments {
            let part = rest.next()?;
            match segment {
                Segment::Exact(text) => (decoded(part, false) == *text).then_some(())?,
                Segment::Parameter(name) => {
                    (!part.is_empty()).then_some(())?;
                    parameters.insert(name.clone(), decoded(part, false));
                }
                Segment::Greedy(name) => {
                    let all: Vec<_> = std::iter::once(part).chain(rest.by_ref()).collect();
                    let all = all.join("/");
                    (!all.is_empty()).then_some(())?;
                    parameters.insert(name.clone(), decoded(&all, false));
                }
                Segment::Default => return None,
            }
        }
        rest.next().is_none().then_some(parameters)
    }

    /// Exact before parameter before greedy, segment by segment; a method before `ANY`.
    fn rank(&self) -> (Vec<u8>, bool) {
        let rank = |segment: &Segment| match segment {
            Segment::Exact(_) => 0,
            Segment::Parameter(_) => 1,
            Segment::Greedy(_) => 2,
            Segment::Default => 3,
        };
        (self.segments.iter().map(rank).collect(), self.method == "ANY")
    }
}

/// The route that takes a request. `path` is as it came, still encoded.
#[must_use]
pub fn find(routes: &[Route], method: &str, path: &str) -> Option<Matched> {
    let taking = routes
        .iter()
        .enumerate()
        .filter_map(|(index, route)| Some((index, route, route.takes(method, path)?)));
    let (index, route, parameters) = taking.min_by_key(|(_, route, _)| route.rank())?;
    Some(Matched { index, key: route.key(), parameters })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(
        routes: &[(&str, &str)],
        request: (&str, &str),
        expected: Option<(&str, &[(&str, &str)])>,
    ) {
        let routes: Vec<_> = routes.iter().map(|(method, path)| Route::new(method, path)).collect();
        let found =
            find(&routes, request.0, request.1).map(|matched| (matched.key, matched.parameters));
        let expected = expected.map(|(key, parameters)| {
            (
                key.to_owned(),
                parameters
                    .iter()
                    .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                    .collect(),
            )
        });
        assert_eq!(found, expected, "{request:?}");
    }

    #[test]
    fn the_most_particular_route_takes_a_request() {
        let routes = [
            ("ANY", "/v1/{proxy+}"),
            ("GET", "/v1/events/{id}"),
            ("ANY", "/v1/events/last"),
            ("POST", "/webhooks/{source}"),
            ("GET", "/webhooks/{source}"),
        ];
        check(&routes, ("GET", "/v1/events/last"), Some(("ANY /v1/events/last", &[])));
        check(&routes, ("GET", "/v1/events/7"), Some(("GET /v1/events/{id}", &[("id", "7")])));
        check(
            &routes,
            ("DELETE", "/v1/events/7"),
            Some(("ANY /v1/{proxy+}", &[("proxy", "events/7")])),
        );
        check(
            &routes,
            ("POST", "/webhooks/a%20b"),
            Some(("POST /webhooks/{source}", &[("source", "a b")])),
        );
        check(
            &routes,
            ("GET", "/webhooks/a"),
            Some(("GET /webhooks/{source}", &[("source", "a")])),
        );
    }

    #[test]
    fn a_second_parameter_is_another_route() {
        let routes = [
            ("POST", "/webhooks/{source}"),
            ("POST", "/webhooks/{source}/{slot}"),
            ("HEAD", "/webhooks/{source}"),
        ];
        check(
            &routes,
            ("POST", "/webhooks/a/b%2Fc"),
            Some(("POST /webhooks/{source}/{slot}", &[("slot", "b/c"), ("source", "a")])),
        );
        check(
            &routes,
            ("HEAD", "/webhooks/a"),
            Some(("HEAD /webhooks/{source}", &[("source", "a")])),
        );
        check(&routes, ("GET", "/webhooks/a/b"), None);
        check(&routes, ("POST", "/webhooks/a/b/c"), None);
    }

    #[test]
    fn a_request_that_no_route_takes_stays_without_one() {
        let routes = [("POST", "/webhooks/{source}"), ("ANY", "/v1/{proxy+}")];
        for request in [
            ("GET", "/webhooks/a"),
            ("HEAD", "/webhooks/a"),
            ("POST", "/webhooks/"),
            ("POST", "/webhooks/a/"),
            ("POST", "/webhooks/a/b"),
            ("POST", "/"),
            ("POST", "*"),
            ("GET", "/v1"),
            ("GET", "/v1/"),
            ("GET", "/v2/x"),
        ] {
            check(&routes, request, None);
        }
    }

    #[test]
    fn the_default_route_takes_what_is_left() {
        let routes = [("ANY", "$default"), ("GET", "/{proxy+}")];
        check(&routes, ("POST", "/a/b"), Some(("$default", &[])));
        check(&routes, ("GET", "/a/b"), Some(("GET /{proxy+}", &[("proxy", "a/b")])));
    }
}
