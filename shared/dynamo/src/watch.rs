//! How sources are doing: heartbeats, refused requests.

use domain::{
    id::SourceName,
    ports::{
        AcceptReport, RejectReport, RejectSample, SourceHealth, Stored, Watch,
        watch::{MAX_SAMPLES, REJECTS_COUNTED, SAMPLE_LIFE, hour_of},
    },
};
use jiff::{SignedDuration, Timestamp};

use crate::{
    StateTable,
    expression::Expression,
    item::{Reader, ms, s, seconds},
    items::watched::{self, count_name},
    keys,
    table::{Range, Write, partition},
};

/// How long the counts of an hour stay. Housekeeping: what is older than [`REJECTS_COUNTED`] is not counted anyhow.
const COUNTS_LIFE: SignedDuration = SignedDuration::from_hours(48);

impl Watch for StateTable {
    async fn note_accepted(&self, source: &SourceName, report: &AcceptReport) -> Stored<()> {
        let (table, at) = (self.table(), ms(report.at));
        let newer = Expression::new()
            .set("kind", s("heartbeat"))
            .set("matched_at", at.clone())
            .clear(["failing_since"])
            .when("attribute_not_exists(#matched_at) OR #matched_at < :matched_at", []);
        let newer = if report.is_new { newer.set("at", at.clone()) } else { newer };
        let written = table.update(keys::heartbeat(source), &newer).await?;
        if report.is_new && matches!(written, Write::Refused(_)) {
            // A repetition was noted at a later time; the new event still is the end of a silence.
            let beat = Expression::new()
                .set("at", at.clone())
                .when("attribute_not_exists(#at) OR #at < :at", []);
            table.update(keys::heartbeat(source), &beat).await?;
        }
        let Some(id) = &report.key_id else { return Ok(()) };
        let matched = Expression::new()
            .set("kind", s("secret_heartbeat"))
            .set("secret", s(id))
            .set("at", at)
            .when("attribute_not_exists(#pk) OR #at < :at", []);
        table.update(keys::heartbeat_of_secret(source, id), &matched).await.map(drop)
    }

    async fn note_rejects(&self, source: &SourceName, report: &RejectReport) -> Stored<()> {
        let table = self.table();
        let told = || {
            let told = Expression::new()
                .set("kind", s("heartbeat"))
                .set("last_rejected_at", ms(report.at))
                .set("last_reject_reason", s(&report.last_reason));
            if report.sample.is_some() { told.count_up("samples") } else { told }
        };
        // Requests are refused since then, unless one was accepted after them: this report was collected.
        let failing = told()
            .set_once("failing_since", ms(report.at))
            .when("attribute_not_exists(#matched_at) OR #matched_at < :last_rejected_at", []);
        let place = match table.update_and_read(keys::heartbeat(source), &failing).await? {
            Write::Done(item) => item,
            Write::Refused(_) => {
                match table.update_and_read(keys::heartbeat(source), &told()).await? {
                    Write::Done(item) | Write::Refused(item) => item,
                }
            }
        };
        let expires_at = |life| seconds(report.at.saturating_add(life).unwrap_or(Timestamp::MAX));
        if !report.counts.is_empty() {
            let counts = Expression::new()
                .set("kind", s("rejects"))
                .set("expires_at", expires_at(COUNTS_LIFE));
            let counts = report
                .counts
                .iter()
                .fold(counts, |counts, (code, count)| counts.count(&count_name(code), *count));
            table.update(keys::rejects(source, hour_of(report.at)), &counts).await?;
        }
        if let Some(sample) = &report.sample {
            let place = Reader(&place).number::<usize>("samples")? % MAX_SAMPLES;
            let item = watched::write_sample(source, place, sample, expires_at(SAMPLE_LIFE))?;
            table.put_anyway(item).await?;
        }
        Ok(())
    }

    async fn health(&self, source: &SourceName, now: Timestamp) -> Stored<SourceHealth> {
        let since = now.saturating_sub(REJECTS_COUNTED).unwrap_or(Timestamp::MIN);
        let all = Range::partition(partition(keys::heartbeat_partition(source)));
        let mut health = SourceHealth::default();
        self.table()
            .each(&all, |item| watched::read_into(&mut health, Reader(&item), since))
            .await?;
        Ok(health)
    }

    async fn reconciled_until(&self, source: &SourceName) -> Stored<Option<Timestamp>> {
        let cursor = self.table().get(keys::cursor(source)).await?;
        cursor.map(|item| Reader(&item).time("until")).transpose()
    }

    async fn rejected(
        &self,
        source: &SourceName,
        limit: usize,
        now: Timestamp,
    ) -> Stored<Vec<RejectSample>> {
        let all = Range::partition(partition(keys::samples_partition(source)));
        let mut samples = self.table().rows(&all, watched::read_sample).await?;
        samples.retain(|sample| now.duration_since(sample.at) < SAMPLE_LIFE);
        samples.sort_by_key(|sample| std::cmp::Reverse(sample.at));
        samples.truncate(limit);
        Ok(samples)
    }
}
