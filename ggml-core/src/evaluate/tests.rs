use super::*;
use crate::cpu::{CpuBackend, CpuOptions};
use crate::encode::encode;
use crate::metrics::Bound;
use crate::metrics::Distance;
use crate::null::{Fault, NullBackend, NullOptions};
use crate::reference::ReferenceBackend;
use crate::tensor::Source;

fn cpu() -> CpuBackend {
    CpuBackend::open(CpuOptions::default().with_threads(1)).unwrap()
}

fn null(fault: Option<&str>) -> NullBackend {
    let fault = fault.map(|text| Fault::parse(text).unwrap());
    NullBackend::open(NullOptions::default().with_fault(fault)).unwrap()
}

/// y = w x, its transpose, and the rows of y written into a Q8_0 state.
struct Small {
    graph: Graph,
    data: Contents,
    w: TensorId,
    x: TensorId,
    y: TensorId,
}

fn small() -> Small {
    let mut g = Graph::new();
    let w = g.leaf("w", DType::Q8_0, [32, 32, 1, 1], Source::Weight).unwrap();
    let x = g.leaf("x", DType::F32, [32, 2, 1, 1], Source::Input).unwrap();
    let rows = g.leaf("rows", DType::I32, [2, 1, 1, 1], Source::Input).unwrap();
    let cache = g.leaf("cache", DType::Q8_0, [32, 3, 1, 1], Source::State).unwrap();
    let y = g.mul_mat(w, x).unwrap();
    g.name(y, "y").unwrap();
    let transposed = g.transpose(y).unwrap();
    let set = g.set_rows(cache, y, rows).unwrap();
    [y, transposed, set].into_iter().for_each(|id| g.output(id).unwrap());
    // Row i of w has 127 at column i, so y is 127 x. Blocks with a largest element of 127 have scale 1.
    let diagonal: Vec<f32> = (0..32 * 32).map(|i| if i % 33 == 0 { 127.0 } else { 0.0 }).collect();
    let mut xs = [0.0f32; 64];
    (xs[0], xs[1], xs[32]) = (1.0, 2.0 / 127.0, -1.0);
    let data = [
        (w, encode(DType::Q8_0, 32, &diagonal).unwrap()),
        (x, encode(DType::F32, 32, &xs).unwrap()),
        (rows, encode(DType::I32, 2, &[2.0, 0.0]).unwrap()),
    ];
    Small { graph: g, data: data.into(), w, x, y }
}

#[test]
fn outputs_are_dense_whatever_they_look_into() {
    let s = small();
    for backend in [&ReferenceBackend::default() as &dyn Backend, &cpu()] {
        let outputs = evaluate(backend, &s.graph, &s.data, Precision::Exact).unwrap();
        let [y, transposed, set] = &outputs[..] else { panic!("{outputs:?}") };
        assert_eq!((y.name.as_str(), y.dtype, y.ne), ("y", DType::F32, [32, 2, 1, 1]));
        let values = y.values().unwrap();
        assert_eq!((values[0], values[1], values[32]), (127.0, 2.0, -127.0));
        assert_eq!(transposed.ne, [2, 32, 1, 1]);
        assert_eq!(transposed.values().unwrap()[..4], [127.0, -127.0, 2.0, 0.0]);
        assert_eq!((set.dtype, set.ne, set.bytes.len()), (DType::Q8_0, [32, 3, 1, 1], 3 * 34));
        let rows = set.values().unwrap();
        assert_eq!((rows[0], rows[64], rows[65]), (-127.0, 127.0, 2.0));
        assert_eq!(rows[32..64], [0.0; 32], "state begins as zeros");
        assert_eq!(evaluate(backend, &s.graph, &s.data, Precision::Exact).unwrap(), outputs);
    }
}

#[test]
fn state_begins_with_its_contents_where_it_has_some() {
    let mut s = small();
    let cache = s.graph.find("cache").unwrap();
    s.data.insert(cache, encode(DType::Q8_0, 32, &[127.0; 96]).unwrap());
    let outputs = evaluate(&cpu(), &s.graph, &s.data, Precision::Exact).unwrap();
    assert_eq!(outputs[2].values().unwrap()[32..64], [127.0; 32]);
}

#[test]
fn contents_must_be_those_of_the_leaves() {
    let s = small();
    let backend = null(None);
    let says = |data: &Contents, fields: [&str; 3]| match evaluate(&backend, &s.graph, data, Precision::Exact)
        .unwrap_err()
    {
        Error::InvalidArgument { what, found, expected } => assert_eq!([what, found, expected], fields),
        other => panic!("{other}"),
    };
    let changed = |change: &dyn Fn(&mut Contents)| {
        let mut data = s.data.clone();
        change(&mut data);
        data
    };
    let x = ["contents of leaf 'x'", "missing", "256 bytes for x F32 [32, 2]"];
    says(&changed(&|d| drop(d.remove(&s.x))), x);
    let w = ["contents of leaf 'w'", "3 bytes", "1088 bytes for w Q8_0 [32, 32]"];
    says(&changed(&|d| drop(d.insert(s.w, vec![0; 3]))), w);
    let y = ["contents", "of node 'y'", "of leaves only"];
    says(&changed(&|d| drop(d.insert(s.y, vec![0; 256]))), y);
    let foreign = ["contents", "of tensor 99", "of leaves of the graph"];
    says(&changed(&|d| drop(d.insert(TensorId(99), Vec::new()))), foreign);
    assert_eq!(backend.stats().driver_allocations, 0, "nothing is allocated for what does not fit");
}

#[test]
fn what_a_backend_cannot_compute_is_named() {
    let mut g = Graph::new();
    let bytes = g.leaf("bytes", DType::I8, [4, 1, 1, 1], Source::Input).unwrap();
    g.output(bytes).unwrap();
    let data = [(bytes, vec![0; 4])].into();
    match evaluate(&ReferenceBackend::default(), &g, &data, Precision::Exact).unwrap_err() {
        Error::Unsupported { backend, op, node, reason } => {
            assert_eq!([backend.as_str(), op, &node], ["reference", "LEAF", "bytes"]);
            assert!(reason.contains("I8"), "{reason}");
        }
        other => panic!("{other}"),
    }
}

/// The null backend has no memory limit, but the host has.
#[test]
fn a_result_without_room_on_the_host_is_an_error() {
    let mut g = Graph::new();
    let x = g.leaf("x", DType::F32, [4, 1, 1, 1], Source::Input).unwrap();
    let rows = g.view(x, [4, 1 << 30, 1, 1], [4, 0, 0, 0], 0).unwrap();
    let products = g.mul_mat(rows, rows).unwrap();
    g.output(products).unwrap();
    let data = [(x, vec![0; 16])].into();
    let error = evaluate(&null(None), &g, &data, Precision::Exact).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory { asked, .. } if asked == 1 << 62), "{error}");
}

#[test]
fn weights_share_an_allocation() {
    let mut g = Graph::new();
    let mut data = Contents::new();
    for name in ["a", "b", "c"] {
        let id = g.leaf(name, DType::F32, [4, 1, 1, 1], Source::Weight).unwrap();
        data.insert(id, vec![0; 16]);
    }
    let backend = null(None);
    let bindings = bind(&backend, &g, &data).unwrap();
    assert_eq!((bindings.leaves.len(), backend.stats().driver_allocations), (3, 1));
}

#[test]
fn a_backend_that_differs_or_fails_does_not_hide_the_others() {
    let s = small();
    let (reference, cpu) = (ReferenceBackend::default(), cpu());
    let (zeros, broken) = (null(None), null(Some("fail@first_compute:y")));
    let compared =
        compare_backends(&[&reference, &zeros, &broken, &cpu], &s.graph, &s.data, Precision::Exact).unwrap();
    let [zeros, broken, cpu] = &compared[..] else { panic!("{compared:?}") };
    assert!(!zeros.agrees());
    assert_eq!(zeros.to_string(), "null: output 'y' has NMSE 1.0e0, the bound 1e-7");
    assert!(!broken.agrees());
    assert_eq!(broken.to_string(), "null: null: injected fault in phase first_compute at node 'y'");
    assert!(cpu.agrees(), "{cpu}");
    assert_eq!(cpu.to_string(), "cpu: agrees");
    assert_eq!(cpu.outputs.as_ref().unwrap().len(), 3);

    assert!(compare_backends(&[&reference], &s.graph, &s.data, Precision::Exact).unwrap().is_empty());
    assert!(compare_backends(&[&broken_first(), &reference], &s.graph, &s.data, Precision::Exact).is_err());
    let none = compare_backends(&[], &s.graph, &s.data, Precision::Exact).unwrap_err();
    assert_eq!(none.to_string(), "backends: 0; expected at least one");
}

fn broken_first() -> NullBackend {
    null(Some("fail@prepare"))
}

/// Elements that an operation must not write are part of the comparison.
#[test]
fn the_whole_tensor_behind_an_output_is_measured() {
    let mut g = Graph::new();
    let state = g.leaf("state", DType::F32, [4, 2, 1, 1], Source::State).unwrap();
    let x = g.leaf("x", DType::F32, [4, 1, 1, 1], Source::Input).unwrap();
    let first = g.view(state, [4, 1, 1, 1], [4, 16, 32, 32], 0).unwrap();
    let copy = g.cpy(x, first).unwrap();
    g.output(copy).unwrap();
    let zeros = encode(DType::F32, 4, &[0.0; 4]).unwrap();
    let kept = encode(DType::F32, 4, &[0.0, 0.0, 0.0, 0.0, 7.0, 0.0, 0.0, 0.0]).unwrap();
    let data = [(x, zeros), (state, kept)].into();
    let compared =
        compare_backends(&[&ReferenceBackend::default(), &null(None)], &g, &data, Precision::Exact).unwrap();
    let outputs = compared[0].outputs.as_ref().unwrap();
    // The copied zeros are right; the 7 after them is missing.
    assert_eq!((outputs[0].distance.max_abs, outputs[0].distance.worst), (7.0, 4));
}

#[test]
fn one_node_has_the_bound_of_its_operation() {
    let mut g = Graph::new();
    let w = g.leaf("w", DType::Q4_0, [32, 2, 1, 1], Source::Weight).unwrap();
    let x = g.leaf("x", DType::F32, [32, 1, 1, 1], Source::Input).unwrap();
    let y = g.mul_mat(w, x).unwrap();
    g.output(y).unwrap();
    let contents: Vec<f32> = (0..64).map(|i| (i * 7 % 13) as f32 - 6.0).collect();
    let data: Contents = [
        (w, encode(DType::Q4_0, 32, &contents).unwrap()),
        (x, encode(DType::F32, 32, &contents[..32]).unwrap()),
    ]
    .into();
    let bound = |graph: &Graph, precision| {
        let backends: [&dyn Backend; 2] = [&ReferenceBackend::default(), &cpu()];
        let compared = compare_backends(&backends, graph, &data, precision).unwrap();
        assert!(compared[0].agrees(), "{}", compared[0]);
        compared[0].outputs.as_ref().unwrap()[0].bound.nmse
    };
    assert_eq!([bound(&g, Precision::Exact), bound(&g, Precision::Fast)], [2e-10, 5e-4]);
    let z = g.scale(y, 2.0, 0.0).unwrap();
    g.output(z).unwrap();
    assert_eq!([bound(&g, Precision::Exact), bound(&g, Precision::Fast)], [1e-7, 5e-3]);
    let nan = OutputDistance {
        name: "y".into(),
        distance: Distance { nmse: f64::NAN, ..Distance::default() },
        bound: Bound { nmse: 1.0, row: 1.0 },
    };
    assert!(!nan.agrees());
}
