//! Small inputs that the first launch of a run reads from pinned memory: the runtime copies nothing.

use crate::results::{device, program, read};
use ggml_core::backend::Program;
use ggml_core::{DType, Graph, Source, TensorId};

fn write(program: &mut dyn Program, id: TensorId, values: &[f32]) {
    program.write(id, bytemuck::cast_slice(values)).unwrap();
}

/// More inputs than a launch reads, of lengths from one word to many, one written in every run, others in some: each run
/// sees the values written last, in graphs too. The runtime copies nothing but the large input, and that only when it was
/// written.
#[test]
fn small_inputs_come_with_the_run() {
    let Some((backend, faults)) = device() else { return };
    let mut g = Graph::new();
    let mut nodes = Vec::new();
    for n in [1, 33, 1000, 64, 257, 7, 8, 9, 20_000] {
        let x = g.leaf(&format!("x{n}"), DType::F32, [n, 1, 1, 1], Source::Input).unwrap();
        let y = g.scale(x, 2.0, 1.0).unwrap();
        g.output(y).unwrap();
        nodes.push((x, y, n));
    }
    let mut program = program(&backend, &g, false);
    let mut values: Vec<Vec<f32>> = nodes.iter().map(|&(_, _, n)| vec![0.0; n]).collect();
    for round in 0..6 {
        for (i, &(x, _, n)) in nodes.iter().enumerate() {
            if round == 0 || round % (i + 1) == 0 {
                values[i] = (0..n).map(|j| (j + 100 * round + i) as f32).collect();
                write(&mut *program, x, &values[i]);
            }
        }
        let before = faults.count("hipMemcpyAsync");
        program.run().unwrap();
        assert_eq!(faults.count("hipMemcpyAsync") - before, usize::from(round == 0), "run {round}");
        for (&(_, y, n), values) in nodes.iter().zip(&values) {
            let wanted: Vec<f32> = values.iter().map(|x| x * 2.0 + 1.0).collect();
            assert!(read(&mut *program, y, n) == wanted, "{n} elements, run {round}");
        }
    }
}

/// A part of an input that is written between runs changes that part only, whether the whole was written since or not.
#[test]
fn parts_of_inputs_are_written_in_order() {
    let Some((backend, _)) = device() else { return };
    let mut g = Graph::new();
    let x = g.leaf("x", DType::F32, [4, 2, 1, 1], Source::Input).unwrap();
    let row = g.view(x, [4, 1, 1, 1], [4, 16, 16, 16], 16).unwrap();
    let y = g.scale(x, 1.0, 0.0).unwrap();
    g.output(y).unwrap();
    let mut program = program(&backend, &g, false);
    write(&mut *program, x, &[1.0; 8]);
    program.run().unwrap();
    write(&mut *program, row, &[3.0; 4]);
    assert_eq!(read(&mut *program, x, 8), [1.0, 1.0, 1.0, 1.0, 3.0, 3.0, 3.0, 3.0]);
    program.run().unwrap();
    assert_eq!(read(&mut *program, y, 8), [1.0, 1.0, 1.0, 1.0, 3.0, 3.0, 3.0, 3.0]);
    program.run().unwrap();
    assert_eq!(read(&mut *program, y, 8), [1.0, 1.0, 1.0, 1.0, 3.0, 3.0, 3.0, 3.0]);
    write(&mut *program, row, &[4.0; 4]);
    write(&mut *program, x, &[5.0; 8]);
    program.run().unwrap();
    assert_eq!(read(&mut *program, y, 8), [5.0; 8]);
}

/// A node writes into an input; the next run finds what it wrote.
#[test]
fn nodes_that_write_into_an_input_are_not_undone() {
    let Some((backend, _)) = device() else { return };
    let mut g = Graph::new();
    let x = g.leaf("x", DType::F32, [8, 4, 1, 1], Source::Input).unwrap();
    let rows = g.leaf("rows", DType::F32, [8, 1, 1, 1], Source::Input).unwrap();
    let ids = g.leaf("ids", DType::I32, [1, 1, 1, 1], Source::Input).unwrap();
    let written = g.set_rows(x, rows, ids).unwrap();
    g.output(written).unwrap();
    let mut program = program(&backend, &g, false);
    write(&mut *program, x, &[0.0; 32]);
    for (round, id) in [2i32, 0].into_iter().enumerate() {
        write(&mut *program, rows, &[1.0 + round as f32; 8]);
        program.write(ids, bytemuck::bytes_of(&id)).unwrap();
        program.run().unwrap();
    }
    let all = read(&mut *program, written, 32);
    let of_row = |i: usize| all[8 * i];
    assert_eq!([of_row(0), of_row(1), of_row(2), of_row(3)], [2.0, 0.0, 1.0, 0.0]);
}
