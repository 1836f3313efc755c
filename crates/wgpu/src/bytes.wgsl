// Writes `value` to `count` words; the masks select bytes of the first and the last word.
@group(0) @binding(0) var<storage, read_write> words: array<u32>;
// Blocks, first word, `count`, mask of the first word, mask of the last word, `value`.
@group(0) @binding(1) var<uniform> launch: array<vec4<u32>, 2>;

@compute @workgroup_size(256)
fn kiln_fill(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let block = group.y * groups.x + group.x;
    if block >= launch[0].x {
        return;
    }
    let first = launch[0].y;
    let count = launch[0].z;
    let value = launch[1].y;
    for (var i = block * 256u + thread; i < count; i += launch[0].x * 256u) {
        var mask = 0xffffffffu;
        if i == 0u {
            mask &= launch[0].w;
        }
        if i + 1u == count {
            mask &= launch[1].x;
        }
        words[first + i] = (words[first + i] & ~mask) | (value & mask);
    }
}
