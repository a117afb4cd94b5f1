//! Chat templates: any source renders a conversation or ends with an error.
#![no_main]

use diptych::chat::{ChatInput, ChatTemplate, Message, ToolCall};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|source: &str| {
    let Ok(template) = ChatTemplate::new(source) else { return };
    let arguments = serde_json::json!({"city": "Citt\u{e0}", "days": [1, 2.5, null, true]});
    let input = ChatInput::new([
        Message::system("Be brief."),
        Message::user(" What is it? "),
        Message::assistant("").with_tool_calls(&[ToolCall::new(Some("c1"), "weather", arguments)]),
        Message::tool("c1", "weather", "21"),
    ]);
    let _ = template.with_token("bos_token", "<s>").with_token("eos_token", "</s>").render(&input);
});
