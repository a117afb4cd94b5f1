//! Conversations that begin anew with their last turns when a context is full.

use super::Message;

/// Messages of a conversation: those at its beginning that always stay, such as the system message, then turns. A
/// turn is a message of the user with everything that follows before the next one.
///
/// A context has an end, and a conversation has none. [`Conversation::drop_turn`] leaves out the oldest turn:
///
/// ```
/// use diptych::chat::{Conversation, Message};
///
/// let mut conversation = Conversation::new([Message::system("Be brief.")]);
/// for (question, answer) in [("One?", "1"), ("Two?", "2")] {
///     conversation.push(Message::user(question));
///     conversation.push(Message::assistant(answer));
/// }
/// conversation.push(Message::user("Three?"));
/// assert!(conversation.drop_turn());
/// let roles: Vec<String> = conversation.messages().iter().map(Message::role).collect();
/// assert_eq!(roles, ["system", "user", "assistant", "user"]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Conversation {
    messages: Vec<Message>,
    /// Number of messages that always stay.
    kept: usize,
}

impl Conversation {
    /// Creates a conversation without turns. The given messages always stay.
    pub fn new(kept: impl IntoIterator<Item = Message>) -> Conversation {
        let messages: Vec<Message> = kept.into_iter().collect();
        Conversation { kept: messages.len(), messages }
    }

    /// Adds a message.
    pub fn push(&mut self, message: Message) {
        self.messages.push(message);
    }

    /// Removes the last message of a turn and returns it.
    pub fn pop(&mut self) -> Option<Message> {
        if self.messages.len() > self.kept { self.messages.pop() } else { None }
    }

    /// Returns all messages, the oldest first.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Returns the number of turns.
    pub fn turns(&self) -> usize {
        self.begins().count()
    }

    /// Removes the oldest turn, but never the last one. Returns true if there was one to remove.
    pub fn drop_turn(&mut self) -> bool {
        let Some(second) = self.begins().nth(1) else { return false };
        self.messages.drain(self.kept..second);
        true
    }

    /// Returns the indices of the first messages of the turns.
    fn begins(&self) -> impl Iterator<Item = usize> + '_ {
        (self.kept..self.messages.len()).filter(|&at| self.messages[at].role() == "user")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_turns_go_first_and_the_last_one_stays() {
        let mut conversation = Conversation::new([Message::system("S")]);
        assert!(!conversation.drop_turn() && conversation.pop().is_none());
        for turn in 0..3 {
            conversation.push(Message::user(format!("q{turn}")));
            conversation.push(Message::assistant("a"));
            conversation.push(Message::tool("1", "f", "b"));
        }
        conversation.push(Message::user("q3"));
        let contents = |conversation: &Conversation| -> Vec<String> {
            let messages = serde_json::to_value(conversation.messages()).unwrap();
            let all = messages.as_array().unwrap().iter();
            all.map(|m| m["content"].as_str().unwrap().to_string()).collect()
        };
        assert_eq!(conversation.turns(), 4);
        assert!(conversation.drop_turn() && conversation.drop_turn());
        assert_eq!(contents(&conversation), ["S", "q2", "a", "b", "q3"]);
        assert!(conversation.drop_turn() && !conversation.drop_turn());
        assert_eq!((contents(&conversation), conversation.turns()), (vec!["S".into(), "q3".into()], 1));
        assert!(conversation.pop().is_some() && conversation.pop().is_none());
    }
}
