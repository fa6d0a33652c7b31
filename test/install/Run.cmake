# Shared by the tests of what is installed.

# run(COMMAND…): its output, both streams, in `output`; a failure ends the test and shows it.
function(run)
  execute_process(COMMAND ${ARGV} WORKING_DIRECTORY "${BUILD}" RESULT_VARIABLE status OUTPUT_VARIABLE output
    ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    string(REPLACE ";" " " command "${ARGV}")
    message(FATAL_ERROR "${command}: ${status}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

# expect(PATTERN): in the last output.
function(expect pattern)
  if(NOT output MATCHES "${pattern}")
    message(FATAL_ERROR "no ${pattern} in:\n${output}")
  endif()
endfunction()
