// Fields of the parameters of MUL_MAT_ID (MulMatIdParams), with which those of ExpertsParams begin. Included in a block, so it
// has no guard.
    uint m, k;
    uint experts, used, tokens;
    uint nb0_0, nb0_1;
    uint nb1_0, nb1_1;
    uint nb2_0, nb2_1;
    uint nbd_0, nbd_1;
    uint off0, off1, off2, offd;
    uint first_expert, window_experts;
