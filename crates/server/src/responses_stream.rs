//! An answer of `/v1/responses` as a stream of events.

use serde_json::{Value, json};

use crate::app::App;
use crate::error::ApiError;
use crate::generate::{Delta, End, Generation};
use crate::responses::{finished, function_call, message, reasoning};
use crate::sse::{Dialect, Events};
use crate::wire::responses::{Item, ResponseAnswer};

/// What kind of item is being written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Message,
    Reasoning,
}

/// An item on its way.
struct Open {
    kind: Kind,
    id: String,
    text: String,
}

/// The events of an answer, numbered.
pub(crate) struct Stream {
    answer: ResponseAnswer,
    app: App,
    open: Option<Open>,
    number: u64,
    end: Option<End>,
}

impl Stream {
    /// For an answer in which nothing has been said.
    pub(crate) fn new(answer: ResponseAnswer, app: App) -> Self {
        Self { answer, app, open: None, number: 0, end: None }
    }

    fn tell(&mut self, events: &mut Events, name: &str, members: Value) {
        let mut event = json!({ "type": name, "sequence_number": self.number });
        if let (Some(event), Value::Object(members)) = (event.as_object_mut(), members) {
            event.extend(members);
        }
        self.number += 1;
        events.named(name, &event);
    }

    /// Where the item being written will stand.
    fn place(&self) -> usize {
        self.answer.output.len()
    }

    fn write(&mut self, events: &mut Events, kind: Kind, text: &str) {
        if self.open.as_ref().is_none_or(|open| open.kind != kind) {
            self.close(events);
            self.begin(events, kind);
        }
        let place = self.place();
        let Some(open) = &mut self.open else { return };
        open.text.push_str(text);
        let members = json!({
            "item_id": open.id, "output_index": place, "content_index": 0, "delta": text,
        });
        let name = match kind {
            Kind::Message => "response.output_text.delta",
            Kind::Reasoning => "response.reasoning_text.delta",
        };
        self.tell(events, name, members);
    }

    fn begin(&mut self, events: &mut Events, kind: Kind) {
        let id = self.app.world().id(match kind {
            Kind::Message => "msg_",
            Kind::Reasoning => "rs_",
        });
        let item = match kind {
            Kind::Message => json!({
                "type": "message", "id": id, "role": "assistant", "status": "in_progress",
                "content": [],
            }),
            Kind::Reasoning => {
                json!({ "type": "reasoning", "id": id, "summary": [], "content": [] })
            }
        };
        let place = self.place();
        let added = json!({ "output_index": place, "item": item });
        self.tell(events, "response.output_item.added", added);
        let part = json!({
            "item_id": id, "output_index": place, "content_index": 0, "part": part(kind, ""),
        });
        self.tell(events, "response.content_part.added", part);
        self.open = Some(Open { kind, id, text: String::new() });
    }

    fn close(&mut self, events: &mut Events) {
        let Some(Open { kind, id, text }) = self.open.take() else { return };
        let place = self.place();
        let done =
            json!({ "item_id": id, "output_index": place, "content_index": 0, "text": text });
        let name = match kind {
            Kind::Message => "response.output_text.done",
            Kind::Reasoning => "response.reasoning_text.done",
        };
        self.tell(events, name, done);
        let part = json!({
            "item_id": id, "output_index": place, "content_index": 0, "part": part(kind, &text),
        });
        self.tell(events, "response.content_part.done", part);
        self.finish_item(
            events,
            match kind {
                Kind::Message => message(id, text, "completed"),
                Kind::Reasoning => reasoning(id, text),
            },
        );
    }

    fn finish_item(&mut self, events: &mut Events, item: Item) {
        let done = json!({ "output_index": self.place(), "item": item });
        self.tell(events, "response.output_item.done", done);
        self.answer.output.push(item);
    }

    fn call(&mut self, events: &mut Events, item: Item) {
        let Item::FunctionCall { id, call_id, name, arguments, .. } = &item else { return };
        let place = self.place();
        let added = json!({ "output_index": place, "item": {
            "type": "function_call", "id": id, "call_id": call_id, "name": name, "arguments": "",
            "status": "in_progress",
        } });
        let delta = json!({ "item_id": id, "output_index": place, "delta": arguments });
        let done = json!({
            "item_id": id, "output_index": place, "name": name, "arguments": arguments,
        });
        self.tell(events, "response.output_item.added", added);
        self.tell(events, "response.function_call_arguments.delta", delta);
        self.tell(events, "response.function_call_arguments.done", done);
        self.finish_item(events, item);
    }
}

fn part(kind: Kind, text: &str) -> Value {
    match kind {
        Kind::Message => json!({ "type": "output_text", "text": text, "annotations": [] }),
        Kind::Reasoning => json!({ "type": "reasoning_text", "text": text }),
    }
}

impl Dialect for Stream {
    fn begin(&mut self, events: &mut Events, _: &Generation) {
        for name in ["response.created", "response.in_progress"] {
            let members = json!({ "response": self.answer });
            self.tell(events, name, members);
        }
    }

    fn delta(&mut self, events: &mut Events, delta: Delta, _: &Generation) {
        match delta {
            Delta::Content { text, .. } if text.is_empty() => {}
            Delta::Content { text, .. } => self.write(events, Kind::Message, &text),
            Delta::Reasoning { text, .. } => self.write(events, Kind::Reasoning, &text),
            Delta::Call { call, .. } => {
                self.close(events);
                let item = function_call(&call, &self.app);
                self.call(events, item);
            }
            Delta::Done { end, .. } => self.end = Some(end),
        }
    }

    fn end(&mut self, events: &mut Events, generation: &Generation) {
        self.close(events);
        let end = self.end.take().unwrap_or(End::Stop);
        let answer = finished(self.answer.clone(), &end, &generation.usage());
        let name = match end {
            End::Length => "response.incomplete",
            _ => "response.completed",
        };
        self.tell(events, name, json!({ "response": answer }));
    }

    fn fail(&mut self, events: &mut Events, error: &ApiError) {
        self.answer.status = "failed";
        self.answer.error = Some(json!({ "code": error.code, "message": error.public }));
        let members = json!({ "response": self.answer });
        self.tell(events, "response.failed", members);
    }
}
