//! Assignment of nodes to devices.

use crate::backend::{Backend, Support};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::tensor::{Source, TensorId};
use std::collections::BTreeMap;

/// A node that runs on the host instead of the wanted device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// Name of the node.
    pub node: String,
    /// Name of its operation.
    pub op: &'static str,
    /// Reason of the fallback.
    pub reason: String,
}

impl std::fmt::Display for Fallback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} '{}': {}", self.op, self.node, self.reason)
    }
}

/// Devices of a graph's nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// Index of the device of each tensor; only the entries of computing nodes are meaningful.
    pub device: Vec<usize>,
    /// Nodes that run on the host although another device was wanted, in order.
    pub fallbacks: Vec<Fallback>,
}

impl Placement {
    /// Returns the device of all computing nodes, if it is the same for all.
    pub fn only_device(&self, graph: &Graph) -> Option<usize> {
        let mut devices = graph.computed().map(|id| self.device[id.index()]);
        let first = devices.next()?;
        devices.all(|d| d == first).then_some(first)
    }
}

/// Returns the reason why a backend cannot compute a node, if it cannot.
pub fn unsupported(backend: &dyn Backend, graph: &Graph, node: TensorId) -> Option<String> {
    match backend.supports(graph, node) {
        Support::Native => None,
        Support::Unsupported { reason } => Some(reason),
    }
}

/// Assigns every computing node to the device given by `wanted`. If `refuses` returns a reason against that
/// device, the node goes to the host. The nodes that use one state tensor all go to the host unless they can
/// all be on one device.
///
/// # Errors
/// [`Error::Unsupported`] with the backend name `host_name` if the host refuses a node too.
pub fn assign_devices(
    graph: &Graph,
    (host, host_name): (usize, &str),
    wanted: &dyn Fn(TensorId) -> usize,
    refuses: &dyn Fn(TensorId, usize) -> Option<String>,
) -> Result<Placement> {
    let mut device = vec![host; graph.tensors().len()];
    let mut reasons: BTreeMap<TensorId, String> = BTreeMap::new();
    for id in graph.computed().filter(|&id| wanted(id) != host) {
        match refuses(id, wanted(id)) {
            Some(reason) => {
                reasons.insert(id, reason);
            }
            None => device[id.index()] = wanted(id),
        }
    }
    keep_state_together(graph, host, &mut device, &mut reasons);
    for id in graph.computed().filter(|&id| device[id.index()] == host) {
        let Some(reason) = refuses(id, host) else { continue };
        // The first refusal comes first: it is more informative than the host's.
        let reason = reasons.remove(&id).map(|first| format!("{first}; {reason}")).unwrap_or(reason);
        let node = graph.tensor(id).name.clone();
        return Err(Error::Unsupported { backend: host_name.into(), op: op_name(graph, id), node, reason });
    }
    let named =
        |(id, reason)| Fallback { node: graph.tensor(id).name.clone(), op: op_name(graph, id), reason };
    Ok(Placement { device, fallbacks: reasons.into_iter().map(named).collect() })
}

fn op_name(graph: &Graph, id: TensorId) -> &'static str {
    graph.tensor(id).op().map_or("LEAF", |op| op.name())
}

/// Returns the state tensors that a node reads or writes.
pub(super) fn states(graph: &Graph, id: TensorId) -> impl Iterator<Item = TensorId> {
    let tensor = graph.tensor(id);
    let roots = tensor.src().iter().map(|&s| graph.tensor(s).root).chain([tensor.root]);
    roots.filter(|&root| graph.tensor(root).source == Source::State)
}

/// Moves nodes to the host until all nodes that use one state tensor are on one device.
fn keep_state_together(
    graph: &Graph,
    host: usize,
    device: &mut [usize],
    reasons: &mut BTreeMap<TensorId, String>,
) {
    // A node may use several state tensors, so moving it for one may separate the users of another.
    loop {
        let mut users: BTreeMap<TensorId, Vec<TensorId>> = BTreeMap::new();
        for id in graph.computed() {
            for state in states(graph, id) {
                users.entry(state).or_default().push(id);
            }
        }
        let mut moved = false;
        for (state, users) in users {
            let first = device[users[0].index()];
            let Some(&other) = users.iter().find(|u| device[u.index()] != first) else { continue };
            let stays = users.iter().copied().find(|u| device[u.index()] == host).unwrap_or(other);
            for user in users {
                if device[user.index()] == host {
                    continue;
                }
                let name = |id: TensorId| &graph.tensor(id).name;
                let reason = format!(
                    "its state '{}' is used by '{}', which is on another device",
                    name(state),
                    name(stays)
                );
                reasons.insert(user, reason);
                device[user.index()] = host;
                moved = true;
            }
        }
        if !moved {
            return;
        }
    }
}
