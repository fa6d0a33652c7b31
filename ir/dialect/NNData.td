// Constants, weights and data movement. Shape attributes hold integers and symbolic dims.
#ifndef FUSION_NN_DATA
#define FUSION_NN_DATA

include "ir/dialect/NNBase.td"

def NN_ConstantOp : NN_Op<"constant", [ConstantLike, NN_Stored, NN_ShardRule]> {
  let summary = "a constant written in the module";
  let description = [{
    ```mlir
    %c = nn.constant {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
    ```
  }];
  let arguments = (ins ElementsAttr:$value);
  let results = (outs NN_Tensor:$y);
  let hasFolder = 1;
}

def NN_WeightOp : NN_Op<"weight", [NN_Stored, NN_ShardRule]> {
  let summary = "a constant whose bytes stay in a file until they are loaded";
  let description = [{
    `length` bytes at `offset` of the file `path`, in the layout of the result type, little endian. A relative
    path is looked up beside the graph file. i4 and ui4 are two to a byte, low half first.

    With `whole` and `starts`, the bytes are a tensor of shape `whole`, and the result is the part of it that
    begins at `starts`: one rank's shard, since `starts` may name the symbol `tp_rank`. Only that part is
    loaded.

    With `rank_paths` and `rank_offsets`, rank r reads the bytes from the r-th path and offset instead: for a
    model that was cut into a file for each rank.

    With `part_paths` and `part_offsets`, the bytes are the concatenation of equal spans, which lie at these
    paths and offsets: for the experts of a layer that a file holds one by one. `path` and `offset` are those
    of the first span.

    ```mlir
    %w = nn.weight {name = "model.norm.weight", path = "model.onnx", offset = 4096 : i64, length = 256 : i64}
       : () -> tensor<128xbf16>
    %p = nn.weight {name = "up.weight", path = "model.onnx", offset = 0 : i64, length = 512 : i64,
                    whole = array<i64: 32, 8>, starts = ["16*tp_rank", 0]} : () -> tensor<16x8xbf16>
    ```
  }];
  let arguments = (ins StrAttr:$name, StrAttr:$path, I64Attr:$offset, I64Attr:$length,
                       OptionalAttr<DenseI64ArrayAttr>:$whole, OptionalAttr<NN_DimsAttr>:$starts,
                       OptionalAttr<StrArrayAttr>:$rank_paths, OptionalAttr<DenseI64ArrayAttr>:$rank_offsets,
                       OptionalAttr<StrArrayAttr>:$part_paths, OptionalAttr<DenseI64ArrayAttr>:$part_offsets);
  let results = (outs NN_Tensor:$y);
  let builders = [OpBuilder<(ins "::mlir::Type":$y, "::llvm::StringRef":$name, "::llvm::StringRef":$path,
                                 "int64_t":$offset, "int64_t":$length),
                            [{
    build($_builder, $_state, y, name, path, offset, length, nullptr, nullptr, nullptr, nullptr, nullptr,
          nullptr);
  }]>];
  let extraClassDeclaration = [{
    /// The shape of what lies in the file.
    ::llvm::ArrayRef<int64_t> shapeInFile() {
      return getWhole() ? *getWhole() : ::llvm::cast<::mlir::RankedTensorType>(getType()).getShape();
    }
  }];
}

def NN_DimConstantOp : NN_Op<"dim_constant"> {
  let summary = "integers known from the input shapes";
  let description = [{
    The values, in row-major order, of an integer tensor of static shape.

    ```mlir
    %s = nn.dim_constant {values = ["s15 + 1"]} : () -> tensor<i64>
    ```
  }];
  let arguments = (ins NN_DimsAttr:$values);
  let results = (outs NN_IntTensor:$y);
}

def NN_IotaOp : NN_Op<"iota", [NN_Indexed]> {
  let summary = "start, start + step, … (`size` values)";
  let description = [{
    `start` and `step` are scalars of the result's element type.

    ```mlir
    %r = nn.iota %start, %step {size = ["seq"]} : (tensor<i64>, tensor<i64>) -> tensor<?xi64>
    ```
  }];
  let arguments = (ins NN_Tensor:$start, NN_Tensor:$step, NN_DimsAttr:$size);
  let results = (outs NN_Tensor:$y);
}

def NN_ReshapeOp : NN_Op<"reshape", [NN_View, NN_ShardRule]> {
  let summary = "the same elements, in row-major order, under another shape";
  let description = [{
    ```mlir
    %y = nn.reshape %x {shape = ["batch", "seq", 4, 32]} : (tensor<?x?x128xf16>) -> tensor<?x?x4x32xf16>
    ```
  }];
  let arguments = (ins NN_Tensor:$x, NN_DimsAttr:$shape);
  let results = (outs NN_Tensor:$y);
  let hasFolder = 1;
}

def NN_TransposeOp : NN_Op<"transpose", [NN_View, NN_ShardRule]> {
  let summary = "result dim i is operand dim perm[i]";
  let description = [{
    ```mlir
    %y = nn.transpose %x {perm = array<i64: 0, 2, 1, 3>} : (tensor<?x?x4x32xf16>) -> tensor<?x4x?x32xf16>
    ```
  }];
  let arguments = (ins NN_Tensor:$x, DenseI64ArrayAttr:$perm);
  let results = (outs NN_Tensor:$y);
  let hasFolder = 1;
}

def NN_ExpandOp : NN_Op<"expand", [NN_View, NN_Shardable]> {
  let summary = "broadcast to `shape` (every dim of the result is given)";
  let description = [{
    ```mlir
    %y = nn.expand %x {shape = ["batch", 2, 2, "seq", 32]}
       : (tensor<?x2x1x?x32xf16>) -> tensor<?x2x2x?x32xf16>
    ```
  }];
  let arguments = (ins NN_Tensor:$x, NN_DimsAttr:$shape);
  let results = (outs NN_Tensor:$y);
  let hasFolder = 1;
}

def NN_SliceOp : NN_Op<"slice", [NN_View, NN_ShardRule]> {
  let summary = "for every dim: `sizes` elements from `starts`, `steps` apart";
  let description = [{
    All three have one entry per dim. Starts are in range and not negative; a negative step walks backwards.

    ```mlir
    %y = nn.slice %x {starts = [0, 0, 64], sizes = ["batch", "seq", 64], steps = array<i64: 1, 1, 1>}
       : (tensor<?x?x256xf16>) -> tensor<?x?x64xf16>
    ```
  }];
  let arguments = (ins NN_Tensor:$x, NN_DimsAttr:$starts, NN_DimsAttr:$sizes, DenseI64ArrayAttr:$steps);
  let results = (outs NN_Tensor:$y);
  let hasFolder = 1;
}

def NN_ConcatOp : NN_Op<"concat", [NN_Indexed, NN_ShardRule]> {
  let summary = "operands one after the other along `axis`";
  let description = [{
    ```mlir
    %y = nn.concat %past, %new {axis = 2 : i64}
       : (tensor<?x2x?x32xf16>, tensor<?x2x1x32xf16>) -> tensor<?x2x?x32xf16>
    ```
  }];
  let arguments = (ins Variadic<NN_Tensor>:$parts, I64Attr:$axis);
  let results = (outs NN_Tensor:$y);
  let hasFolder = 1;
}

def NN_CacheWriteOp : NN_Op<"cache_write", [NN_Indexed, NN_ShardRule]> {
  let summary = "a cache whose rows at the places `rows` are replaced by new ones";
  let description = [{
    `fresh` has n rows along `axis`, `past` has P. The result has P rows, or P + n with `grows`.
    Row rows[i] of the result is row i of `fresh`, unless the result has no such row; all other rows are those
    of `past`, and 0 from row P on. `rows` broadcasts to `fresh`, has 1 in the dims after `axis`, and its
    entries follow each other: rows[i] = rows[0] + i. With `grows` and rows[0] = P this is nn.concat.

    ```mlir
    %y = nn.cache_write %past, %fresh, %rows {axis = 2 : i64, grows = true}
       : (tensor<?x2x?x32xf16>, tensor<?x2x?x32xf16>, tensor<?x1x?x1xi64>) -> tensor<?x2x?x32xf16>
    ```
  }];
  let arguments = (ins NN_Tensor:$past, NN_Tensor:$fresh, NN_IntTensor:$rows, I64Attr:$axis,
                       DefaultValuedAttr<BoolAttr, "false">:$grows);
  let results = (outs NN_Tensor:$y);
}

def NN_PadOp : NN_Op<"pad", [NN_Indexed]> {
  let summary = "`low` and `high` copies of `value` around every dim";
  let description = [{
    ```mlir
    %y = nn.pad %x, %value {low = [0, 1], high = [0, 0]} : (tensor<?x8xf32>, tensor<f32>) -> tensor<?x9xf32>
    ```
  }];
  let arguments = (ins NN_Tensor:$x, NN_Tensor:$value, NN_DimsAttr:$low, NN_DimsAttr:$high);
  let results = (outs NN_Tensor:$y);
}

def NN_TriluOp : NN_Op<"trilu", [NN_Indexed]> {
  let summary = "the upper or lower triangle of the last two dims, zero elsewhere";
  let description = [{
    Keeps column - row >= k (upper) or <= k (lower).

    ```mlir
    %y = nn.trilu %x {upper = true, k = 1 : i64} : (tensor<?x?xf32>) -> tensor<?x?xf32>
    ```
  }];
  let arguments = (ins NN_Tensor:$x, BoolAttr:$upper, I64Attr:$k);
  let results = (outs NN_Tensor:$y);
}

def NN_GatherOp : NN_Op<"gather", [NN_Indexed, NN_ShardRule]> {
  let summary = "slices of `x` along `axis`, chosen by `indices`";
  let description = [{
    A negative index counts from the end. An index out of range reads the nearest valid element; one in a
    graph's input is an error before the run.

    ```mlir
    %y = nn.gather %table, %ids {axis = 0 : i64}
       : (tensor<256x128xf16>, tensor<?x?xi64>) -> tensor<?x?x128xf16>
    ```
  }];
  let arguments = (ins NN_Tensor:$x, NN_IntTensor:$indices, I64Attr:$axis);
  let results = (outs NN_Tensor:$y);
}

def NN_GatherElementsOp : NN_Op<"gather_elements", [NN_Indexed]> {
  let summary = "y[i][j][k] = x[i][indices[i][j][k]][k] for axis 1";
  let description = [{
    Negative indices and those out of range: as for nn.gather.

    ```mlir
    %y = nn.gather_elements %x, %i {axis = 1 : i64} : (tensor<1x128xi64>, tensor<1x?xi64>) -> tensor<1x?xi64>
    ```
  }];
  let arguments = (ins NN_Tensor:$x, NN_IntTensor:$indices, I64Attr:$axis);
  let results = (outs NN_Tensor:$y);
}

def NN_GatherNdOp : NN_Op<"gather_nd", [NN_Indexed]> {
  let summary = "slices of `x`; the last dim of `indices` addresses its dims after `batch_dims`";
  let description = [{
    Negative indices and those out of range: as for nn.gather.

    ```mlir
    %y = nn.gather_nd %x, %i {batch_dims = 0 : i64}
       : (tensor<?x?xi1>, tensor<?x1x1x?x2xi64>) -> tensor<?x1x1x?xi1>
    ```
  }];
  let arguments = (ins NN_Tensor:$x, NN_IntTensor:$indices, I64Attr:$batch_dims);
  let results = (outs NN_Tensor:$y);
}

def NN_ScatterNdOp : NN_Op<"scatter_nd"> {
  let summary = "a copy of `x` in which the slices that `indices` address are replaced by `updates`";
  let description = [{
    Indices must not repeat. A negative one counts from the end. An update with an index out of range is left
    out; one in a graph's input is an error before the run.

    ```mlir
    %y = nn.scatter_nd %x, %i, %u : (tensor<?x?xf32>, tensor<?x2xi64>, tensor<?xf32>) -> tensor<?x?xf32>
    ```
  }];
  let arguments = (ins NN_Tensor:$x, NN_IntTensor:$indices, NN_Tensor:$updates);
  let results = (outs NN_Tensor:$y);
}

#endif
