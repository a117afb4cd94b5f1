//! The text of a `tracing` event.

/// Message and fields of an event as text, without the backend's name.
#[derive(Default)]
pub(crate) struct EventText(pub(crate) String);

impl tracing::field::Visit for EventText {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        let text = format!("{value:?}");
        // The reader knows the backend already.
        if field.name() == "backend" || text == "\"\"" {
            return;
        }
        if !self.0.is_empty() {
            self.0.push_str(", ");
        }
        if field.name() != "message" {
            self.0.push_str(field.name());
            self.0.push_str(": ");
        }
        self.0.push_str(&text);
    }
}
