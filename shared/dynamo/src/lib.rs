//! dynamo.
