//! Input of a template: messages, tools and variables.

use super::ChatError;
use super::budget::{Limit, MAX_TIME};
use crate::cancel::Cancel;
use ggml_core::{Deadline, Phase};
use minijinja::Value;
use minijinja::value::{Serde, ValueKind};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::time::{Duration, SystemTime};

/// Message of a conversation. A template gets its fields in the order in which they were given.
#[derive(Clone, Debug)]
pub struct Message {
    fields: Value,
}

impl Message {
    /// Creates a message of any role.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Message {
        let fields = [("role", role.into()), ("content", content.into())];
        Message { fields: Value::from_pairs(fields) }
    }

    /// Creates a system message: instructions for the model.
    pub fn system(content: impl Into<String>) -> Message {
        Message::new("system", content)
    }

    /// Creates a message of the user.
    pub fn user(content: impl Into<String>) -> Message {
        Message::new("user", content)
    }

    /// Creates a message of the model.
    pub fn assistant(content: impl Into<String>) -> Message {
        Message::new("assistant", content)
    }

    /// Creates the answer of a tool to a call.
    pub fn tool(call_id: impl Into<String>, name: impl Into<String>, content: impl Into<String>) -> Message {
        Message::new("tool", content).with("tool_call_id", &call_id.into()).with("name", &name.into())
    }

    /// Adds a field, or replaces its value: `content` as a list of parts, `reasoning_content`, ...
    pub fn with(self, field: &str, value: &impl Serialize) -> Message {
        let old = self.fields.try_iter().into_iter().flatten();
        let mut pairs: Vec<(Value, Value)> = old
            .map(|key| {
                let value = self.fields.get_item(&key).unwrap_or_default();
                (key, value)
            })
            .collect();
        let value = Value::from(Serde(value));
        match pairs.iter_mut().find(|(key, _)| key.as_str() == Some(field)) {
            Some((_, old)) => *old = value,
            None => pairs.push((Value::from(field), value)),
        }
        Message { fields: Value::from_pairs(pairs) }
    }

    /// Adds the calls that the model made.
    pub fn with_tool_calls(self, calls: &[ToolCall]) -> Message {
        self.with("tool_calls", &calls)
    }

    /// Returns the role.
    pub fn role(&self) -> String {
        self.fields.get_attr("role").ok().and_then(|r| r.as_str().map(str::to_string)).unwrap_or_default()
    }

    pub(super) fn fields(&self) -> Value {
        self.fields.clone()
    }
}

impl Serialize for Message {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.fields.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Message, D::Error> {
        let fields = Value::deserialize(deserializer)?;
        let role = fields.get_attr("role").ok();
        if fields.kind() != ValueKind::Map || role.is_none_or(|r| r.as_str().is_none()) {
            return Err(D::Error::custom("a message is an object with a text 'role'"));
        }
        Ok(Message { fields })
    }
}

/// Function call that the model requested.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ToolCall {
    /// Kind of call: `function`.
    #[serde(rename = "type", default = "function")]
    pub kind: String,
    /// Id of the call, which the tool's answer repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Function and its arguments.
    pub function: FunctionCall,
}

/// Name and arguments of a [`ToolCall`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FunctionCall {
    /// Name of the function.
    pub name: String,
    /// Arguments: an object, or its text.
    pub arguments: serde_json::Value,
}

fn function() -> String {
    "function".to_string()
}

impl ToolCall {
    /// Creates a call of a function.
    pub fn new(id: Option<&str>, name: &str, arguments: serde_json::Value) -> ToolCall {
        let function_call = FunctionCall { name: name.to_string(), arguments };
        ToolCall { kind: function(), id: id.map(str::to_string), function: function_call }
    }
}

/// Input of a template, except the model's special tokens.
///
/// Maps retain the order in which they were written if they come from text ([`ChatInput::from_json`]) or from
/// a structure; `serde_json::Value` sorts its keys unless its feature `preserve_order` is on.
#[derive(Clone, Debug, Default)]
pub struct ChatInput {
    /// Conversation.
    pub messages: Vec<Message>,
    /// True if the text ends where the model's answer begins.
    pub add_generation_prompt: bool,
    /// Time that `strftime_now` formats; `None`: the current time.
    pub now: Option<SystemTime>,
    tools: Option<Value>,
    variables: Vec<(String, Value)>,
    deadline: Option<Duration>,
    cancel: Option<Cancel>,
}

/// Returns a value with a function applied to all its texts, but not to names of fields.
fn mapped(value: &Value, map: &dyn Fn(&str) -> String) -> Value {
    let items = || value.try_iter().into_iter().flatten();
    match (value.as_str(), value.kind()) {
        (Some(text), _) => Value::from(map(text)),
        (None, ValueKind::Map) => {
            let entry = |key: Value| {
                let value = value.get_item(&key).unwrap_or_default();
                (key, mapped(&value, map))
            };
            Value::from_pairs(items().map(entry))
        }
        (None, ValueKind::Seq | ValueKind::Iterable) => items().map(|item| mapped(&item, map)).collect(),
        _ => value.clone(),
    }
}

/// JSON form of an input; `tools` and every other key are variables.
#[derive(Deserialize)]
struct Written {
    messages: Vec<Message>,
    #[serde(default)]
    add_generation_prompt: bool,
}

impl ChatInput {
    /// Creates a conversation for which the model writes the next message.
    pub fn new(messages: impl IntoIterator<Item = Message>) -> ChatInput {
        ChatInput {
            messages: messages.into_iter().collect(),
            add_generation_prompt: true,
            ..ChatInput::default()
        }
    }

    /// Parses a JSON object with `messages`, `tools`, `add_generation_prompt` (default: false) and further
    /// variables.
    pub fn from_json(text: &str) -> Result<ChatInput, ChatError> {
        let wrong = |e: serde_json::Error| ChatError::Input { what: e.to_string() };
        let written: Written = serde_json::from_str(text).map_err(wrong)?;
        let all: Value = serde_json::from_str(text).map_err(wrong)?;
        let mut input = ChatInput {
            messages: written.messages,
            add_generation_prompt: written.add_generation_prompt,
            ..ChatInput::default()
        };
        for key in all.try_iter().into_iter().flatten() {
            let value = all.get_item(&key).unwrap_or_default();
            match key.as_str() {
                Some("messages" | "add_generation_prompt") | None => {}
                Some("tools") => input.tools = Some(value),
                Some(name) => input.variables.push((name.to_string(), value)),
            }
        }
        Ok(input)
    }

    /// Adds the tools that the model may call: descriptions as the template expects them, usually JSON
    /// schemas.
    pub fn with_tools(mut self, tools: &impl Serialize) -> ChatInput {
        self.tools = Some(Value::from(Serde(tools)));
        self
    }

    /// Adds a variable of the template (`enable_thinking`, `date_string`, ...).
    pub fn with(mut self, name: &str, value: &impl Serialize) -> ChatInput {
        self.variables.push((name.to_string(), Value::from(Serde(value))));
        self
    }

    /// Sets if the text ends where the model's answer begins.
    pub fn generation_prompt(mut self, yes: bool) -> ChatInput {
        self.add_generation_prompt = yes;
        self
    }

    /// Passes the contents of all messages but the model's own through a function:
    /// [`Tokenizer::guard`](crate::Tokenizer::guard), so that nobody who writes a message can forge the turns of
    /// others. Encode the rendered text with
    /// [`Tokenizer::encode_chat`](crate::Tokenizer::encode_chat).
    pub fn guarded(mut self, guard: &dyn Fn(&str) -> String) -> ChatInput {
        for message in self.messages.iter_mut().filter(|message| message.role() != "assistant") {
            let Ok(content) = message.fields.get_attr("content") else { continue };
            if !content.is_undefined() {
                *message = message.clone().with("content", &mapped(&content, guard));
            }
        }
        self
    }

    /// Sets the time that the template may take, in place of [`MAX_TIME`].
    pub fn with_deadline(mut self, time: Duration) -> ChatInput {
        self.deadline = Some(time);
        self
    }

    /// Sets a handle that ends the template from another thread.
    pub fn with_cancel(mut self, cancel: Cancel) -> ChatInput {
        self.cancel = Some(cancel);
        self
    }

    /// Returns the limits of a template that begins now.
    pub(super) fn limit(&self) -> Limit {
        let deadline = Deadline::new(Phase::Prepare, self.deadline.unwrap_or(MAX_TIME));
        Limit { deadline: Some(deadline), cancel: self.cancel.clone() }
    }

    /// Returns all variables; of equal names the last one takes effect.
    pub(super) fn variables(&self) -> Vec<(String, Value)> {
        let messages: Value = self.messages.iter().map(Message::fields).collect();
        let mut all = vec![
            ("messages".to_string(), messages),
            ("tools".to_string(), self.tools.clone().unwrap_or(Value::from(()))),
            ("documents".to_string(), Value::from(())),
            ("add_generation_prompt".to_string(), Value::from(self.add_generation_prompt)),
        ];
        all.extend(self.variables.iter().cloned());
        all
    }
}
