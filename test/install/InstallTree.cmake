# Installs BUILD into a folder, builds SOURCE/examples/run_model with nothing but that folder, and runs it.
set(folder "${BUILD}/test/install-tree")
file(REMOVE_RECURSE "${folder}")

function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    string(REPLACE ";" " " command "${ARGV}")
    message(FATAL_ERROR "${command}: ${status}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${folder}/prefix)
run(${folder}/prefix/bin/fusion-opt --version)
run(${CMAKE_COMMAND} -S ${SOURCE}/examples/run_model -B ${folder}/build -G ${GENERATOR}
  -DCMAKE_MAKE_PROGRAM=${MAKE_PROGRAM} -DCMAKE_C_COMPILER=${C} -DCMAKE_CXX_COMPILER=${CXX}
  -DCMAKE_PREFIX_PATH=${folder}/prefix)
run(${CMAKE_COMMAND} --build ${folder}/build)
set(llama "${SOURCE}/examples/llama")
run(${folder}/build/run_model ${llama}/model.onnx ${llama}/inputs.safetensors ${llama}/outputs.safetensors)
if(NOT output MATCHES "logits: relative L2 error")
  message(FATAL_ERROR "run_model compared nothing:\n${output}")
endif()
file(REMOVE_RECURSE "${folder}")
